"""Data collection: an agent acts in environments and fills the replay buffer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from eagerly.agents.agent import Agent
from eagerly.agents.agent_settings import NO_HINDSIGHT
from eagerly.buffers import Accumulator, Replay, RowLayout, Transition
from eagerly.buffers.replay import RowWriter
from eagerly.environments.factory import environment_maker
from eagerly.environments.flattening import make_flat
from eagerly.environments.group import Rollout
from eagerly.environments.guard import GuardedEnvironment
from eagerly.errors import InterruptedRolloutError, RunError, RunStoppedError, whole_number
from eagerly.policies.behavior import BehaviorPolicy
from eagerly.policies.exploration import Exploration
from eagerly.policies.network import ActorNetwork
from eagerly.policies.numpy_actor import NumpyActor, RowPolicy
from eagerly.policies.weights import check_weights
from eagerly.training.goal_replay import make_hindsight
from eagerly.workers.environment_groups import Environments


class Collector:
    """Collects transitions from N environments, one round at a time, into the replay buffer.

    In each round, every environment is stepped `rollout_steps` times with one version of the
    policy. If the agent has a `rollout_policy`, each group of environments acts independently.
    Otherwise, the agent's behavior policy acts in all environments. Steps enter the buffer by time,
    then by environment.

    Args:
        agent: The agent whose policy acts.
        environments: The environments. Only the collector steps them.
        buffer: Receives the transitions.
        warmup_steps: Initial environment steps with uniformly random actions.
        warmup_ends_with_episode: Whether random actions continue, in all environments, to the end
            of the first round in which an episode ends at or after `warmup_steps` steps.
        rollout_steps: T, the steps of each environment in a round.
        policy_lag: 0: collect each round when `collect` is called, with the current policy. 1:
            collect it in a background thread during the updates that follow the previous round,
            with the policy from before those updates.
        accumulator: Converts steps into transitions; None uses the agent's accumulator.

    Attributes:
        steps: Environment steps so far, summed over all environments.
        steps_owing_updates: Number of steps of the newest round that were made after the warm-up
            and therefore entail updates.
        environments: The environments.

    Raises:
        ValueError: If the buffer keeps episodes and the accumulator is not `one_to_one`; if the
            agent uses hindsight replay, which needs an environment, and no accumulator is given; if
            an argument is out of range, or the environments do not have the agent's spaces; or if
            the agent does not support a policy lag.
    """

    def __init__(
        self,
        agent: Agent,
        environments: Environments,
        buffer: Replay,
        *,
        warmup_steps: int = 0,
        warmup_ends_with_episode: bool = False,
        rollout_steps: int = 1,
        policy_lag: int = 0,
        accumulator: Accumulator | None = None,
    ) -> None:
        warmup_steps = whole_number("warmup_steps", warmup_steps)
        rollout_steps = whole_number("rollout_steps", rollout_steps, 1)
        if policy_lag not in (0, 1):
            raise ValueError(f"policy_lag must be 0 or 1; got {policy_lag}")
        shapes = environments.observation_space.shape, environments.action_space.shape
        expected = (agent.observations.size,), agent.actions.row_space.shape
        if shapes != expected:
            raise ValueError(
                f"observations and actions of the environments must have the shapes {expected} of "
                f"the agent's; got {shapes}"
            )
        if accumulator is None:
            if agent.config.hindsight != NO_HINDSIGHT:
                raise ValueError(
                    "hindsight replay requires an environment with goals: use Collector.make, or "
                    "pass an accumulator from eagerly.training.goal_replay.make_hindsight"
                )
            accumulator = agent.accumulator()
        self._accumulator = accumulator
        if buffer.keeps_episodes and not self._accumulator.one_to_one:
            raise ValueError(
                f"{type(buffer).__name__} requires every step of an episode, but "
                f"{type(self._accumulator).__name__} is not one_to_one: use this accumulator "
                "without memory and images"
            )
        # Validate values before an accumulator, which may store them in a checkpoint before they
        # reach the buffer, which validates them as well.
        self._checked: RowWriter | None = None
        if not accumulator.one_to_one and isinstance(buffer.layout, RowLayout):
            self._checked = RowWriter(buffer.layout)
        self._agent, self._behavior = agent, agent.behavior()
        self._rollout_steps = rollout_steps
        policy = agent.rollout_policy()
        self._groups_act = environments.acting and policy is not None
        self._policies: list[BehaviorPolicy] = []  # one per group
        if self._groups_act:
            self._policies = [
                BehaviorPolicy(
                    None, agent.exploration(group.start), agent.observations, agent.actions
                )
                for group in environments.groups
            ]
            environments.set_policies(self._policies)
        can_lag = self._groups_act and isinstance(policy, NumpyActor)  # checkpoints can store it
        if policy_lag and not can_lag:
            raise ValueError(
                f"--policy-lag must be 0 for this {type(agent).__name__}: its policy is recurrent "
                "or does not act in NumPy"
            )
        self._policy_lag = policy_lag
        self.environments, self._buffer = environments, buffer
        self._warmup_steps, self._discount = warmup_steps, agent.config.discount
        self._whole_episodes = warmup_ends_with_episode
        self._warming_up = warmup_steps > 0
        self._actor, self._version = policy, agent.policy.version
        self._begun, self._failed, self._opened = False, False, ExitStack()
        self.steps = self.steps_owing_updates = 0

    @classmethod
    def make(
        cls,
        agent: Agent,
        env: str | Callable[..., gymnasium.Env[Any, Any]],
        buffer: Replay,
        *,
        num_envs: int = 1,
        group_size: int = 0,
        seed: int = 0,
        env_kwargs: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Collector:
        """Creates a collector and its environments, which are stepped sequentially in this process.

        Args:
            agent: The agent whose policy acts.
            env: A Gymnasium id, "package:id", or a factory that returns an environment.
            buffer: Receives the transitions.
            num_envs: N.
            group_size: Environments per group; 0: all in one group.
            seed: The seed from which the reset seed of every episode is derived.
            env_kwargs: Keyword arguments of the environment.
            **more: Further arguments of the collector.

        Raises:
            ValueError: If an argument is out of range, or the environment has other spaces than
                the agent.
            RunError: If the environment does not exist or does not support hindsight replay.
        """
        num_envs, seed = whole_number("num_envs", num_envs, 1), whole_number("seed", seed)
        group_size = whole_number("group_size", group_size)
        make = environment_maker(env, env_kwargs)
        flat = partial(make_flat, make, agent.observations, agent.actions)
        with ExitStack() as opened:
            info_keys: Sequence[str] = ()
            if more.get("accumulator") is None and agent.config.hindsight != NO_HINDSIGHT:
                name = f"environment {make.name!r}"
                extra = make(num_envs)  # an index that no environment of the collector has
                asked = GuardedEnvironment(extra, name, observations=agent.observations)
                goals = opened.enter_context(closing(asked))  # used only for hindsight replay
                more["accumulator"], info_keys = make_hindsight(agent, goals, make.name, seed=seed)
            environments = Environments(
                flat, num_envs, seed, group_size=group_size, info_keys=info_keys
            )
            collector = cls(agent, environments, buffer, **more)
            collector._opened = opened.pop_all()
        return collector

    def begin(self) -> None:
        """Resets every environment to its current episode. `collect` calls this at first."""
        self.environments.start()
        self._begun = True

    def collect(self) -> Rollout:
        """Collects a round, T steps of each environment, and adds it to the buffer.

        Raises:
            RunError: If an environment fails, its image stacks are inconsistent, or an earlier call
                failed. It is a `RunStoppedError` if the state is that before the round, so that it
                can be saved.
            FloatingPointError: If an action, observation or reward is NaN or infinite.
        """
        if not self._begun:
            self.begin()
        if self._failed:
            raise RunError("the last round failed: create a new Trainer to resume the run")
        try:
            rollout = self._acted_by_groups() if self._groups_act else self._acted()
        except InterruptedRolloutError:  # the round continues in the next call
            raise
        except BaseException:
            self._failed = True
            raise
        before, self.steps = self.steps, self.steps + rollout.rewards.size
        if not self._whole_episodes:
            warmup = self._warmup_steps
            self.steps_owing_updates = max(self.steps - warmup, 0) - max(before - warmup, 0)
            self._warming_up = self.steps < warmup
        else:
            self.steps_owing_updates = 0 if self._warming_up else rollout.rewards.size
            if self.steps >= self._warmup_steps and rollout.episodes:
                self._warming_up = False
        if self._policy_lag and self.environments.in_flight is None:
            self._begin_round(self._agent.rollout_policy())
        return rollout

    def _acted_by_groups(self) -> Rollout:
        """Collects a round with independently acting groups, or waits for the round in flight.

        Raises:
            RunStoppedError: If an environment fails. The state is that before the round.
        """
        environments, behavior = self.environments, self._behavior
        noises: list[tuple[Exploration, int, np.ndarray]] = []  # before the round
        try:
            if self._policy_lag and environments.in_flight is not None:
                if environments.can_queue and not self._whole_episodes:
                    # The policy of the round after the one in flight is known before that one ends,
                    # so that the environments never wait for this thread between two rounds.
                    self._begin_round(self._agent.rollout_policy())
                rollout = environments.finish_rollout()
            else:
                if self._version != self._agent.policy.version:
                    self._version = self._agent.policy.version
                    self._actor = self._agent.rollout_policy()
                for policy in self._policies:
                    noise = policy.exploration
                    noises.append((noise, noise.step, noise.process.copy()))
                steps, random = self._rollout_steps, self._random_steps()
                rollout = environments.rollout(self._actor, steps, random)
        except RunError as error:
            for noise, step, process in noises:
                noise.step, noise.process = step, process
            raise RunStoppedError(str(error)) from error
        if environments.lost.any():
            behavior.on_reset(environments.lost)
            self._begin_in_buffer(environments.lost)
        if behavior.counts:
            for step, rewards in enumerate(rollout.rewards):
                behavior.count(rollout.observations[step], rewards, rollout.ended[step])
        self._store(rollout)
        return rollout

    def _acted(self) -> Rollout:
        """Acts in all environments together, step by step."""
        environments, behavior = self.environments, self._behavior
        parts: list[Rollout] = []
        for _ in range(self._rollout_steps):
            steps = self.steps + len(parts) * len(environments)
            uniform = self._warming_up and (self._whole_episodes or steps < self._warmup_steps)
            actions = behavior.act(environments.observations, uniform=uniform)
            part = environments.step(self._agent.actions.to_environment(actions))
            if environments.lost.any():
                self._begin_in_buffer(environments.lost)
            part.actions = actions[np.newaxis]
            self._store(part)
            executed = part.actions[0] if part.replaced else None
            behavior.observe(part.rewards[0], part.ended[0] | environments.lost, executed)
            parts.append(part)
        return Rollout.joined(parts, axis=0)

    def _begin_round(self, actor: RowPolicy | None) -> None:
        """Starts the next round in a thread; `state` excludes it until `collect` returns it."""
        self.environments.begin_rollout(actor, self._rollout_steps, self._random_steps())

    def _begin_in_buffer(self, lost: np.ndarray) -> None:
        """Notifies the accumulator and the buffer about episodes that were reset without ending."""
        self._accumulator.on_reset(lost)
        self._buffer.on_reset(lost)

    def _random_steps(self) -> int:
        """Returns how many steps per environment are still random; may exceed `rollout_steps`."""
        if not self._warming_up:
            return 0
        if self._whole_episodes:
            return self._rollout_steps
        return -((self.steps - self._warmup_steps) // len(self.environments))

    def _store(self, rollout: Rollout) -> None:
        if rollout.replaced:
            self._replace_actions(rollout)
        # Only termination ends the return: a truncated episode would have continued.
        discounts = self._discount * ~rollout.terminated
        following = rollout.next_observations
        for t, ended in enumerate(rollout.ended):
            step = Transition(
                rollout.observations[t],
                rollout.actions[t],
                rollout.rewards[t],
                discounts[t],
                following[t],
            )
            details = () if rollout.kept is None else (rollout.kept[t],)
            try:
                if self._checked is not None:
                    self._checked.pack(step)
                transitions, ends = self._accumulator.accumulate(step, ended, *details)
                if len(ends) > self._buffer.capacity and not self._accumulator.one_to_one:
                    # A long episode may yield more rows than fit: the oldest would be overwritten.
                    newest = slice(-self._buffer.capacity, None)
                    transitions = Transition(*(part[newest] for part in transitions))
                    ends = ends[newest]
                if len(ends):
                    self._buffer.add(transitions, ends)
            except ValueError as error:  # for example inconsistent image stacks
                raise RunError(f"the replay buffer rejected the next step: {error}") from error

    def _replace_actions(self, rollout: Rollout) -> None:
        """Replaces actions by those that the environments report to have executed instead."""
        rollout.actions = rollout.actions.copy()
        for step, number, action in rollout.replaced:
            try:
                rollout.actions[step, number] = self._agent.actions.from_environment(action)
            except ValueError as error:
                raise RunError(
                    f"environment {number}: info['executed_action'] must be an action: {error}"
                ) from error

    def state(self) -> dict[str, Any]:
        """Returns the step count, the behavior policy's state, and the episodes in progress.

        Optional keys: "accumulator" holds the accumulator's state unless that is empty. With
        `warmup_ends_with_episode`, "warming_up" holds whether actions are still random. If a round
        is in flight, "in_flight" holds the weights of its policy.
        """
        behavior = self._behavior.state()
        if self._groups_act:
            explorations = self.environments.explorations()
            process = np.concatenate([each["process"] for each in explorations])
            behavior["exploration"] = explorations[0] | {"process": process}
        state = {
            "steps": self.steps,
            "behavior": behavior,
            "environments": self.environments.state(),
        }
        if self._whole_episodes:
            state["warming_up"] = self._warming_up
        if (actor := self.environments.in_flight) is not None:
            assert isinstance(actor, NumpyActor)
            state["in_flight"] = dict(actor.network.weights)
        accumulated = self._accumulator.state()
        return state | {"accumulator": accumulated} if accumulated else state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores the result of `state`. Restore the buffer's rows and state first.

        Environments that cannot return to their episodes start new ones, see `Environments.lost`.

        Raises:
            ValueError: If the state is from an incompatible collector.
        """
        self.steps = int(state["steps"])
        self._warming_up = self.steps < self._warmup_steps
        if self._whole_episodes:
            self._warming_up = bool(state.get("warming_up", self._warming_up))
        self._behavior.restore(state["behavior"])
        self._accumulator.restore(state.get("accumulator", {}))
        environments, exploration = self.environments, state["behavior"]["exploration"]
        environments.restore(state["environments"])
        lost, process = environments.lost, exploration["process"]
        if len(process) != len(environments):
            process = np.zeros((0, 0), np.float32)  # N has changed: restart the noise
        for policy, group in zip(self._policies, environments.groups, strict=False):
            places = slice(group.start, group.stop)
            policy.exploration.restore({"step": exploration["step"], "process": process[places]})
            policy.on_reset(lost[places])
        if self._policies:
            environments.set_policies(self._policies)
        self._begun = True
        self._behavior.on_reset(lost)
        self._begin_in_buffer(lost)
        if self._policy_lag and "in_flight" in state:
            acting = self._agent.rollout_policy()
            assert isinstance(acting, NumpyActor)
            weights = {name: np.array(each) for name, each in state["in_flight"].items()}
            check_weights(acting.network.architecture, weights)
            self._begin_round(NumpyActor(ActorNetwork(acting.network.architecture, weights)))

    def close(self) -> None:
        """Closes the environments, including the goal environment that `make` may have created."""
        self.environments.close()
        self._opened.close()
