"""The mathematics of relative values: pure functions on tensors.

Equation, lemma and section numbers are those of "Relative Value Learning" (Höftmann, Robine and
Harmeling, ICLR 2026). Everything is time-major, `[T, N]`; states and transitions are numbered as in
`Trajectories`; the critic enters as a function `delta(a, b)` of two tensors of state numbers.
"""

from relval.relative.advantages import gae as gae
from relval.relative.advantages import gauge_slope as gauge_slope
from relval.relative.advantages import lambda_returns as lambda_returns
from relval.relative.advantages import trajectory_constant as trajectory_constant
from relval.relative.anchors import constant_part as constant_part
from relval.relative.anchors import mean_offset as mean_offset
from relval.relative.anchors import minvar_offset as minvar_offset
from relval.relative.anchors import terminal_offset as terminal_offset
from relval.relative.bellman import DiscountedPairwiseBellman as DiscountedPairwiseBellman
from relval.relative.bellman import PairwiseBellman as PairwiseBellman
from relval.relative.delta import Delta as Delta
from relval.relative.delta import LinearDelta as LinearDelta
from relval.relative.pairs import AllPairs as AllPairs
from relval.relative.pairs import Expansion as Expansion
from relval.relative.pairs import SeparablePairs as SeparablePairs
from relval.relative.pairs import all_pairs_loss as all_pairs_loss
from relval.relative.pairs import pair_loss as pair_loss
from relval.relative.pairs import sample_pairs as sample_pairs
from relval.relative.targets import discounted_targets as discounted_targets
from relval.relative.targets import lambda_targets as lambda_targets
from relval.relative.targets import n_step_targets as n_step_targets
from relval.relative.targets import one_step_targets as one_step_targets
from relval.relative.trajectories import Trajectories as Trajectories
from relval.relative.values import direct_values as direct_values
from relval.relative.values import ranked_values as ranked_values
from relval.relative.values import start_states as start_states
from relval.relative.values import telescoped_values as telescoped_values
