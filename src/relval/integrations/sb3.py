"""Stable-Baselines3's PPO with the relative critic.

In a script that uses PPO, change one import:

    from relval.integrations.sb3 import RelativePPO as PPO
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from relval.critics import Minibatch, RelativeConfig, Rollout
from relval.critics.base import explained_variance
from relval.critics.pairs import some_pairs
from relval.critics.relative import RelativeCritic
from relval.ppo import surrogate
from relval.relative import Trajectories
from relval.runs import Config

try:
    from stable_baselines3 import PPO
    from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.policies import ActorCriticPolicy
    from stable_baselines3.common.save_util import load_from_zip_file
    from stable_baselines3.common.type_aliases import (
        GymEnv,
        MaybeCallback,
        RolloutBufferSamples,
        Schedule,
    )
    from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
except ImportError as error:
    raise ImportError(
        'Stable-Baselines3 is not installed: run `pip install "relval[sb3]"`'
    ) from error

_CRITIC_OPTIONS = (
    "pairs",
    "same_episode",
    "partners",
    "target",
    "n",
    "anchor",
    "offset_rate",
    "mask_terminal",
    "both_terminal",
)


class RelativeRolloutBuffer(RolloutBuffer):
    """A rollout whose truncated episodes have their true last states, and whose rewards are true.

    `values` are the scores that the policy's value network gave, of which only differences count;
    `advantages` are R-GAE, and `returns` the sum of both.
    """

    critic: RelativeCritic

    def reset(self) -> None:
        """Forgets the rollout."""
        super().reset()
        self.given: list[np.ndarray] = []
        """The rewards of each step, before SB3 edits those at truncations."""
        self.last_scores: dict[tuple[int, int], float] = {}
        """Of the states that truncations `(t, n)` led to."""

    def compute_returns_and_advantage(self, last_values: Tensor, dones: np.ndarray) -> None:
        """Hands the rollout to the critic, which fixes targets and advantages.

        Args:
          last_values: Scores of the states after the last step, `[N, 1]`.
          dones: Where the last step ended an episode, `[N]`.
        """
        self.rewards = np.stack(self.given).astype(np.float32)
        ended = np.concatenate([self.episode_starts[1:], dones[None]]).astype(np.bool_)
        truncated = np.zeros_like(ended)
        successor = np.arange(ended.size).reshape(ended.shape) + self.n_envs
        for number, place in enumerate(self.last_scores, start=ended.size + self.n_envs):
            truncated[place], successor[place] = True, number
        last = last_values.cpu().numpy().flatten()
        memory = np.concatenate([self.values.flatten(), last, [*self.last_scores.values()]])
        fields = (self.rewards, ended & ~truncated, truncated, successor)
        self.rollout = Rollout(
            traj=Trajectories(*map(self.to_torch, fields)),
            actions=torch.empty(0),  # this critic asks for states alone
            policy_outputs=torch.empty(0),
            memory=self.to_torch(memory.astype(np.float32)),
        )
        self.prepared = self.critic.prepare(self.rollout, gamma=self.gamma, lam=self.gae_lambda)
        self.advantages = self.prepared.advantages.view(ended.shape).cpu().numpy()
        self.returns = self.advantages + self.values

    def minibatches(self, size: int) -> Iterator[tuple[Minibatch, RolloutBufferSamples]]:
        """One epoch of the critic's minibatches, with what was stored of all that they encode."""
        seed = int(torch.randint(2**62, ()))
        generator = torch.Generator(self.device).manual_seed(seed)
        for minibatch in self.critic.minibatches(self.rollout, self.prepared, size, generator):
            t, n = np.unravel_index(minibatch.encode.cpu().numpy(), self.rewards.shape)
            # A callback that called `get` has left what is stored flat, one environment at a time.
            places: Any = n * self.buffer_size + t if self.generator_ready else (t, n)
            yield minibatch, self._get_samples(places)


class RelativeDictRolloutBuffer(RelativeRolloutBuffer, DictRolloutBuffer):
    """The same for observations that are dictionaries."""


class _Recorder(VecEnvWrapper):
    """Tells a buffer of each step what SB3 edits or leaves out when it stores the step."""

    def __init__(
        self, venv: VecEnv, policy: ActorCriticPolicy, buffer: RelativeRolloutBuffer
    ) -> None:
        super().__init__(venv)
        self.policy = policy
        self.buffer = buffer

    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> Any:
        observations, rewards, dones, infos = self.venv.step_wait()
        self.buffer.given.append(rewards.copy())
        for n in np.flatnonzero(dones):
            last = infos[n].get("terminal_observation")
            if infos[n].get("TimeLimit.truncated", False) and last is not None:
                with torch.no_grad():
                    score = self.policy.predict_values(self.policy.obs_to_tensor(last)[0])
                self.buffer.last_scores[self.buffer.pos, int(n)] = score.item()
        return observations, rewards, dones, infos


class RelativePPO(PPO):
    """PPO with a critic of value differences, learned from pairs of states.

    The arguments of `PPO`, and those of the critic. The policy's value network gives a score to
    each state, and the critic is the difference of two scores: values that the policy predicts are
    right up to a constant. At a truncation advantages and targets bootstrap from the true last
    state, and rewards stay as they are.

    These arguments have another meaning, or another default, than with `PPO`:

    - `vf_coef` weighs the mean squared error of differences. That is twice the variance of the
      errors of single scores, so 0.25 gives the critic the weight that it has in PPO with 0.5.
      Heavier critics drown the policy's gradient where they share an encoder, or one gradient
      norm, with it; the paper's 1.25 does.
    - `clip_range_vf` limits how far a difference departs from the old one.
    - `gae_lambda` is also the λ of the critic's targets "returns" and "lambda".
    - `rollout_buffer_class`, where given, must be derived from `RelativeRolloutBuffer`; SB3's own
      classes mean the default.

    `load` and `set_parameters` take files of `PPO` as well; `load` then has the `vf_coef` stored
    there. Where a file has no state that fits the critic's anchor, the critic begins anew. The
    other way round there is no way: `PPO` refuses the critic's state in files of `RelativePPO`.

    Two options of `RelativeConfig` are not here: `head`, because the policy's value network is the
    head, and `refresh_targets`, because a rollout keeps the scores of its last states, but not
    their observations.

    Args:
      pairs: Partners drawn from the rollout ("random"), some of them from the own episode
        ("biased"), or all pairs of a minibatch ("all"), whose mean is computed in closed form
        unless it is clipped.
      same_episode: With biased pairs, the probability of a partner from the own episode.
      partners: With random pairs, where partners are drawn from: the rollout ("batch"), or the
        minibatch ("minibatch"), whose states are encoded anyway.
      target: What differences are regressed on: those of λ-returns ("returns"), or the paper's
        targets ("one-step", "n-step", "lambda").
      n: Steps of n-step targets.
      anchor: Where relative values start: with one constant for all ("mean", "terminal",
        "minvar"), at zero ("zero"), or as in the paper ranked by their start states ("rank").
      offset_rate: With the anchor "mean", the weight of the newest rollout in the constant.
      mask_terminal: Whether the end of an episode is worth zero in advantages, as in PPO; or else,
        with the anchors "zero" and "rank", as much as the next episode's start.
      both_terminal: What two terminal successors differ by: "zero" or "derived".
    """

    rollout_buffer: RelativeRolloutBuffer
    clip_range: Any
    clip_range_vf: Any

    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
        env: GymEnv | str,
        learning_rate: float | Schedule = 3e-4,
        n_steps: int = 2048,
        batch_size: int = 64,
        n_epochs: int = 10,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        clip_range: float | Schedule = 0.2,
        clip_range_vf: float | Schedule | None = None,
        normalize_advantage: bool = True,
        ent_coef: float = 0.0,
        vf_coef: float = 0.25,
        max_grad_norm: float = 0.5,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        rollout_buffer_class: type[RolloutBuffer] | None = None,
        rollout_buffer_kwargs: dict[str, Any] | None = None,
        target_kl: float | None = None,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
        *,
        pairs: str = RelativeConfig.pairs,
        same_episode: float = RelativeConfig.same_episode,
        partners: str = RelativeConfig.partners,
        target: str = RelativeConfig.target,
        n: int = RelativeConfig.n,
        anchor: str = RelativeConfig.anchor,
        offset_rate: float = RelativeConfig.offset_rate,
        mask_terminal: bool = RelativeConfig.mask_terminal,
        both_terminal: str = RelativeConfig.both_terminal,
    ) -> None:
        # Plain attributes, as SB3 keeps its own: `save` and `load` then know them.
        self.pairs = pairs
        self.same_episode = same_episode
        self.partners = partners
        self.target = target
        self.n = n
        self.anchor = anchor
        self.offset_rate = offset_rate
        self.mask_terminal = mask_terminal
        self.both_terminal = both_terminal
        super().__init__(
            policy,
            env,
            learning_rate=learning_rate,
            n_steps=n_steps,
            batch_size=batch_size,
            n_epochs=n_epochs,
            gamma=gamma,
            gae_lambda=gae_lambda,
            clip_range=clip_range,
            clip_range_vf=clip_range_vf,
            normalize_advantage=normalize_advantage,
            ent_coef=ent_coef,
            vf_coef=vf_coef,
            max_grad_norm=max_grad_norm,
            use_sde=use_sde,
            sde_sample_freq=sde_sample_freq,
            rollout_buffer_class=rollout_buffer_class,
            rollout_buffer_kwargs=rollout_buffer_kwargs,
            target_kl=target_kl,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            policy_kwargs=policy_kwargs,
            verbose=verbose,
            seed=seed,
            device=device,
            _init_setup_model=_init_setup_model,
        )

    def _setup_model(self) -> None:
        options = {name: getattr(self, name) for name in _CRITIC_OPTIONS}
        config = RelativeConfig(normalise_advantages=self.normalize_advantage, **options)
        Config(env="", critic=config)  # refuses what is out of range
        self._choose_buffer()
        super()._setup_model()
        config = replace(config, clip=self._critic_clip(), target_lam=self.gae_lambda)
        self.critic = RelativeCritic(config, 1, 0)
        # What it gets for features are the scores.
        self.critic.head = nn.Identity()  # type: ignore[assignment]
        self.critic.to(self.device)
        self.rollout_buffer.critic = self.critic
        bias = getattr(self.policy.value_net, "bias", None)
        if bias is not None:  # no difference depends on it
            bias.requires_grad_(False)

    def _choose_buffer(self) -> None:
        has_parts = isinstance(self.observation_space, spaces.Dict)
        wanted = RelativeDictRolloutBuffer if has_parts else RelativeRolloutBuffer
        # Files of PPO hold SB3's own choice.
        if self.rollout_buffer_class in (None, RolloutBuffer, DictRolloutBuffer):
            self.rollout_buffer_class = wanted
        if not issubclass(self.rollout_buffer_class, wanted):
            raise ValueError(
                f"{self.rollout_buffer_class.__name__} cannot hold what the critic needs of these "
                f"observations; derive rollout_buffer_class from {wanted.__name__}, or pass None"
            )

    def _critic_clip(self) -> float | None:
        if self.clip_range_vf is None:
            return None
        # Schedules may end at zero, which the loss refuses.
        return max(float(self.clip_range_vf(self._current_progress_remaining)), 1e-8)

    def collect_rollouts(
        self,
        env: VecEnv,
        callback: BaseCallback,
        rollout_buffer: RolloutBuffer,
        n_rollout_steps: int,
    ) -> bool:
        """Plays as PPO does, while the buffer is told of rewards and truncations as they are."""
        assert isinstance(rollout_buffer, RelativeRolloutBuffer)
        recorder = _Recorder(env, self.policy, rollout_buffer)
        return super().collect_rollouts(recorder, callback, rollout_buffer, n_rollout_steps)

    def train(self) -> None:
        """Learns from the rollout as PPO does, with the critic's loss over pairs."""
        self.policy.set_training_mode(True)
        optimizer = self.policy.optimizer
        self._update_learning_rate(optimizer)
        clip = self.clip_range(self._current_progress_remaining)
        self.critic.config = replace(
            self.critic.config,
            clip=self._critic_clip(),
            normalise_advantages=self.normalize_advantage,  # may have been changed, as with PPO
        )
        seen: dict[str, list[float]] = defaultdict(list)
        for epoch in range(self.n_epochs):
            seen["approx_kl"].clear()  # SB3 reports that of the last epoch
            for minibatch, samples in self.rollout_buffer.minibatches(self.batch_size):
                loss, metrics = self._loss(minibatch, samples, clip)
                for name, value in metrics.items():
                    seen[name].append(value.item())
                too_far = self.target_kl is not None and (
                    seen["approx_kl"][-1] > 1.5 * self.target_kl
                )
                if too_far:
                    break
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
                optimizer.step()
            self._n_updates += 1
            if too_far:
                if self.verbose >= 1:
                    print(f"Stopped in epoch {epoch}: the policy has moved by more than target_kl")
                break
        self._record(seen, clip)

    def _loss(
        self, minibatch: Minibatch, samples: RolloutBufferSamples, clip: float
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a minibatch, and what SB3 logs of it."""
        actions = samples.actions
        if isinstance(self.action_space, spaces.Discrete):
            actions = actions.long().flatten()
        # Partners come last, and are for the critic alone.
        scores, log_prob, entropy = self.policy.evaluate_actions(samples.observations, actions)
        own = slice(len(minibatch.transitions))
        verdict = self.critic.evaluate(self.rollout_buffer.prepared, minibatch, scores)
        log_ratio = (log_prob - samples.old_log_prob)[own]
        policy_loss, moved = surrogate(log_ratio, verdict.advantages, clip)
        entropy_loss = (log_prob if entropy is None else -entropy)[own].mean()
        loss = policy_loss + self.ent_coef * entropy_loss + self.vf_coef * verdict.loss
        return loss, {
            "loss": loss,
            "policy_gradient_loss": policy_loss,
            "value_loss": verdict.loss,
            "entropy_loss": entropy_loss,
            **moved,
        }

    def _record(self, seen: dict[str, list[float]], clip: float) -> None:
        """Logs under SB3's names; the variance explained is that of differences."""
        buffer = self.rollout_buffer
        target, old = buffer.prepared.judge(*some_pairs(buffer.rollout.traj.transitions))
        self.logger.record("train/explained_variance", explained_variance(target, old).item())
        for name, values in seen.items():
            self.logger.record(f"train/{name}", np.mean(values))
        if hasattr(self.policy, "log_std"):
            self.logger.record("train/std", self.policy.log_std.exp().mean().item())
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/clip_range", clip)
        if self.clip_range_vf is not None:
            self.logger.record("train/clip_range_vf", self.critic.config.clip)

    def learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 1,
        tb_log_name: str = "RelativePPO",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> "RelativePPO":
        """As `PPO.learn`, under another name in TensorBoard."""
        return super().learn(
            total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar
        )

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        modules, variables = super()._get_torch_save_params()
        return [*modules, "critic"], variables  # for what an anchor remembers

    def set_parameters(
        self,
        load_path_or_dict: str | dict[str, Any],
        exact_match: bool = True,
        device: torch.device | str = "auto",
    ) -> None:
        """As `PPO.set_parameters`; a critic for whose anchor there is no state begins anew."""
        params: dict[str, Any]
        if isinstance(load_path_or_dict, dict):
            params = load_path_or_dict
        else:
            params = load_from_zip_file(load_path_or_dict, device=device, load_data=False)[1]
        own = self.critic.state_dict()
        stored: Any = params.get("critic")
        if exact_match and (stored is None or stored.keys() != own.keys()):
            fresh = {name: torch.zeros_like(value) for name, value in own.items()}
            params = {**params, "critic": fresh}
        super().set_parameters(params, exact_match, device)
