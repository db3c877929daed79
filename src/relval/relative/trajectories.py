"""The data model: transitions, states and segments of a rollout."""

from functools import cached_property

import torch
from torch import Tensor

from relval.relative._checks import check_floating, check_integer, check_tensor


class Trajectories:
    """T steps of N parallel environments, time-major, and the state that followed each step.

    The transition `(t, n)` and the state `(t, n)` in which it began both have the number
    `t * N + n`. States have one row more than transitions: row T holds the states after the last
    step. With auto-reset the state `(t + 1, n)` after an episode's end is the first one of the next
    episode, so a truncated episode's true last state has no place in the grid: such states are
    appended, with numbers from `(T + 1) * N` on, and `successor` names them.

    A *segment* is a maximal run of consecutive transitions of one environment within one episode.

    Args:
      rewards: Floating point, `[T, N]`.
      terminated: Bool, `[T, N]`: the successor is terminal. Its value is zero by definition, and it
        is never evaluated.
      truncated: Bool, `[T, N]`: the trajectory is cut, but its successor has a value. Never set
        together with `terminated`. By default no trajectory is cut.
      successor: Integer, `[T, N]`: the number of the state that truly followed each transition. By
        default the next row; must be given where anything is truncated.
      valid: Bool, `[T, N]`: false where the environment ignored the action, as in the extra row of
        next-step auto-reset. Such a row is part of no segment. By default all rows are valid.
      last_valid: Bool, `[N]`: the same for row T, whose actions are yet to come. Under next-step
        auto-reset it may hold the last state of an episode that has ended, which begins nothing.
      num_states: How many states there are, if it is more than `successor` says.

    What the tensors hold is checked on the CPU only: elsewhere reading it would make the caller
    wait for the device. With `num_states` given and `valid` left out, nothing waits.
    """

    def __init__(
        self,
        rewards: Tensor,
        terminated: Tensor,
        truncated: Tensor | None = None,
        successor: Tensor | None = None,
        valid: Tensor | None = None,
        *,
        last_valid: Tensor | None = None,
        num_states: int | None = None,
    ) -> None:
        check_floating("rewards", rewards)
        if rewards.ndim != 2 or rewards.numel() == 0:
            raise ValueError(
                f"rewards must have shape [T, N] with T, N >= 1, got {list(rewards.shape)}"
            )
        self.rewards = rewards
        self.terminated = self._grid_of_flags("terminated", terminated)
        self.truncated = (
            torch.zeros_like(self.terminated)
            if truncated is None
            else self._grid_of_flags("truncated", truncated)
        )
        self.valid = (
            torch.ones_like(self.terminated)
            if valid is None
            else self._grid_of_flags("valid", valid)
        )
        self.last_valid = (
            torch.ones_like(self.valid[0])
            if last_valid is None
            else self._flags("last_valid", last_valid)
        )
        if self.last_valid.shape != self.valid[0].shape:
            raise ValueError(
                f"last_valid must have shape [{self.envs}], got {list(self.last_valid.shape)}"
            )
        if successor is None:
            self.successor = self.states[1:]
        else:
            check_integer("successor", successor)
            self.successor = self._grid("successor", successor).long()
        self._all_valid = valid is None
        self.num_states = num_states or self._count_states()
        if self.device.type == "cpu":
            self._check_contents(next_row=successor is None)

    def _count_states(self) -> int:
        return max(self.states.numel(), int(self.successor.max()) + 1)

    def _check_contents(self, *, next_row: bool) -> None:
        if (self.terminated & self.truncated).any():
            raise ValueError(
                "a transition is both terminated and truncated; where an environment reports both, "
                "pass `truncated & ~terminated`"
            )
        if next_row and self.truncated.any():
            raise ValueError(
                "a truncated transition needs its true successor, because the next row holds "
                "the first state of another episode: append the last states of the truncated "
                "episodes behind the grid and pass their numbers as `successor`"
            )
        if (self.successor < 0).any():
            raise ValueError(
                f"successor must hold state numbers from 0 on, got {int(self.successor.min())}"
            )
        if self.num_states < self._count_states():
            raise ValueError(
                f"num_states must be at least {self._count_states()}, as many as there are in the "
                f"grid and in successor, got {self.num_states}"
            )

    def __repr__(self) -> str:
        episodes = int((self.terminated | self.truncated).sum())
        return (
            f"Trajectories(steps={self.steps}, envs={self.envs}, states={self.num_states}, "
            f"episodes_ended={episodes}, device={self.device})"
        )

    @property
    def steps(self) -> int:
        """T, the number of steps."""
        return self.rewards.shape[0]

    @property
    def envs(self) -> int:
        """N, the number of environments."""
        return self.rewards.shape[1]

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.rewards.device

    @cached_property
    def states(self) -> Tensor:
        """The numbers of the states in the grid, `[T + 1, N]`."""
        count = (self.steps + 1) * self.envs
        return torch.arange(count, device=self.device).view(self.steps + 1, self.envs)

    @cached_property
    def transitions(self) -> Tensor:
        """The numbers of the valid transitions, in order."""
        if self._all_valid:
            return self.states[:-1].flatten()
        return self.valid.flatten().nonzero().squeeze(1)

    @cached_property
    def continues(self) -> Tensor:
        """Whether a transition's segment goes on in the next row, bool `[T, N]`."""
        next_valid = torch.cat([self.valid[1:], torch.zeros_like(self.valid[:1])])
        return self.valid & ~self.terminated & ~self.truncated & next_valid

    @cached_property
    def remaining(self) -> Tensor:
        """k, the steps from a transition to its segment's end, itself included, `[T * N]`.

        The last transition of a segment has 1, an invalid one 0.
        """
        rows = self._rows
        ends = torch.where(self.continues, self.steps, rows).flip(0).cummin(0).values.flip(0)
        return torch.where(self.valid, ends - rows + 1, 0).flatten()

    @cached_property
    def elapsed(self) -> Tensor:
        """The steps from its segment's first transition to a transition, `[T * N]`."""
        follows = torch.cat([torch.zeros_like(self.valid[:1]), self.continues[:-1]])
        begins = torch.where(follows, 0, self._rows).cummax(0).values
        return (self._rows - begins).flatten()

    @cached_property
    def last(self) -> Tensor:
        """The last transition of each one's segment, `[T * N]`; of an invalid one, itself."""
        return self.states[:-1].flatten() + (self.remaining - 1).clamp(min=0) * self.envs

    @cached_property
    def bootstrap(self) -> Tensor:
        """The state whose value stands in for a transition's successor, `[T * N]`.

        The successor itself; where that is terminal, the state before it.
        """
        return torch.where(self.terminated, self.states[:-1], self.successor).flatten()

    @cached_property
    def leads_on(self) -> Tensor:
        """Whether the state in the next row is what truly followed a transition, bool `[T, N]`."""
        is_next = ~self.truncated | (self.successor == self.states[1:])
        return self.valid & ~self.terminated & is_next

    def with_appended(self, grid: Tensor, led_to: Tensor) -> Tensor:
        """What belongs to each state, from what belongs to those of the grid.

        Args:
          grid: For the states in the grid, `[(T + 1) * N]`.
          led_to: For the state that each transition led to, `[T, N]`; read where that is appended.

        Returns:
          For all states, `[num_states]`; 0 for appended ones that nothing led to.
        """
        if self.num_states == self.states.numel():
            return grid
        leads = self.valid & ~self.terminated & (self.successor >= self.states.numel())
        nowhere = self.num_states
        places = torch.where(leads, self.successor, nowhere)
        padded = torch.nn.functional.pad(grid, (0, nowhere + 1 - len(grid)))
        return padded.index_put((places,), led_to)[:nowhere]

    def changed(
        self,
        *,
        rewards: Tensor | None = None,
        terminated: Tensor | None = None,
        truncated: Tensor | None = None,
    ) -> "Trajectories":
        """The same with other rewards or ends, `[T, N]` each."""
        return Trajectories(
            self.rewards if rewards is None else rewards,
            self.terminated if terminated is None else terminated,
            self.truncated if truncated is None else truncated,
            self.successor,
            None if self._all_valid else self.valid,
            last_valid=self.last_valid,
            num_states=self.num_states,
        )

    @cached_property
    def origin(self) -> Tensor:
        """The state at which the trajectory of each state begins in this rollout, `[num_states]`.

        A state of the grid that nothing led to is its own origin.
        """
        rows = torch.arange(self.steps + 1, device=self.device)[:, None]
        led_to = torch.cat([torch.zeros_like(self.leads_on[:1]), self.leads_on])
        origin_rows = torch.where(led_to, 0, rows).cummax(0).values
        origin = (origin_rows * self.envs + self.states[0]).flatten()
        return self.with_appended(origin, origin[self.states[:-1]])

    @property
    def _rows(self) -> Tensor:
        return torch.arange(self.steps, device=self.device)[:, None].expand(-1, self.envs)

    def _grid(self, name: str, tensor: Tensor) -> Tensor:
        if tensor.shape != self.rewards.shape:
            raise ValueError(
                f"{name} must have the shape of rewards, {list(self.rewards.shape)}, "
                f"got {list(tensor.shape)}"
            )
        if tensor.device != self.device:
            raise ValueError(
                f"{name} must be on the device of rewards, {self.device}, got {tensor.device}"
            )
        return tensor

    def _grid_of_flags(self, name: str, tensor: Tensor) -> Tensor:
        return self._grid(name, self._flags(name, tensor))

    def _flags(self, name: str, tensor: Tensor) -> Tensor:
        check_tensor(name, tensor)
        if tensor.dtype != torch.bool:
            raise TypeError(f"{name} must be a bool tensor, got {tensor.dtype}")
        return tensor


def check_transitions(name: str, numbers: Tensor, traj: Trajectories) -> None:
    """Refuses what is not the number of a valid transition.

    The numbers themselves are read on the CPU only: elsewhere reading them would make the caller
    wait for the device.
    """
    check_integer(name, numbers)
    if numbers.device.type != "cpu" or numbers.numel() == 0:
        return
    count = traj.steps * traj.envs
    lowest, highest = int(numbers.min()), int(numbers.max())
    if lowest < 0 or highest >= count:
        raise ValueError(
            f"{name} must hold transition numbers from 0 to {count - 1}, "
            f"got numbers from {lowest} to {highest}"
        )
    if not traj.valid.flatten()[numbers].all():
        raise ValueError(
            f"{name} holds a transition whose action was ignored (valid is false there); "
            "choose among `Trajectories.transitions`"
        )
