"""Intervals for few runs or episodes."""

import math
import statistics
from collections.abc import Sequence

# Quantiles .975 of Student's t with 1, 2, ... degrees of freedom.
_STUDENT_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179)


def mean_and_margin(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and half the width of its 95% interval by Student's t; infinite for one value."""
    mean = statistics.fmean(values)
    freedom = len(values) - 1
    if freedom == 0:
        return mean, math.inf
    return mean, _quantile(freedom) * statistics.stdev(values) / math.sqrt(len(values))


def _quantile(freedom: int) -> float:
    """Student's quantile .975, beyond the table by an expansion around the normal one."""
    if freedom <= len(_STUDENT_T):
        return _STUDENT_T[freedom - 1]
    z = 1.959964
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
