"""N environments in groups: stepping them and restoring their episodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cloudpickle
import gymnasium
import numpy as np

from eagerly.environments.group import UNCHANGED, Acts, EnvironmentGroup, Rollout
from eagerly.environments.watchdog import Watchdog
from eagerly.errors import RunError
from eagerly.policies.numpy_actor import RowPolicy
from eagerly.workers.episode_log import EpisodeLog
from eagerly.workers.group_specs import HERE, GroupSpec, groups_of, make_workers, stepped_groups
from eagerly.workers.recovery import Recovery, Workers
from eagerly.workers.rollout_queue import RolloutQueue

_NOT_REPEATED = "replaying their actions did not reproduce the episodes"


class Environments:
    """N copies of an environment in groups, with a separate seed for each episode.

    Groups run independently in collectors: workers in this process, in other processes or on a Ray
    cluster. The actions of episodes in progress are recorded in this process, so that any group can
    be restored. If a collector is lost, its groups are created again, replay their episodes and
    repeat the pending request.

    Args:
        make: Creates the environment with a given index.
        num_envs: N.
        seed: Seed of the run; every episode's seed derives from it.
        group_size: G, environments per group; the last group may be smaller. 0: a single group.
        acting: Whether groups choose their actions with a policy. Otherwise, the caller supplies
            the actions, each collector has one group, and `group_size` is ignored.
        collectors: Where groups run: "here", "processes", "ray" or "ray:HOST:PORT". Results are
            bitwise identical.
        num_collectors: Number of collectors. 0: one per group (per environment if groups do not
            choose actions), limited by the number of cores.
        allow_different: Whether collectors on other machines may have different versions.
        watchdog: Monitors environments in this process; None disables monitoring.
        timeout: Seconds allowed for a step or reset in another process; 0: unlimited.
        restorable: Whether the actions of episodes in progress are recorded for replay.
        repeats: Whether episodes were found to be reproducible from their seed; None if untested.
        info_keys: Entries of `info` kept for each step, in `Rollout.kept`.
        never_waits: See `RolloutQueue`. Only for environments in this process.

    Attributes:
        groups: Indices of each group's environments.
        acting: Whether groups choose their actions.
        num_collectors: Number of collectors.
        repeats: Whether episodes are reproducible: the argument, then the result of replays. Once
            False, it remains False, also in a restored run.
        lost: `[N]` bool, environments that the latest `restore`, `step` or `rollout` could not
            restore to their episodes. These environments started new episodes.
        why_lost: Why these environments were lost, as text.
        kwargs: Keyword arguments that were changed since the environments were created, as a JSON
            object. An environment receives them at its next reset in a round that begins after the
            change: it is closed and recreated. An environment that fails keeps its arguments,
            see `Rollout.recreated`, and all return to these.
        keeps_kwargs: Whether `restore` restores changed arguments.
        stop_is_expected: The argument of the last call of `expect_stop`; False at first.
        why_changed: Why a saved state is from other environments, as text; "" if it is not. Then
            `restore` starts new episodes, and ignores what was found about the others.
    """

    def __init__(
        self,
        make: Callable[[int], gymnasium.Env[Any, Any]],
        num_envs: int,
        seed: int,
        *,
        group_size: int = 0,
        acting: bool = True,
        collectors: str = HERE,
        num_collectors: int = 0,
        allow_different: bool = False,
        watchdog: Watchdog | None = None,
        timeout: float = 0.0,
        restorable: bool = True,
        repeats: bool | None = None,
        info_keys: Sequence[str] = (),
        never_waits: bool = False,
    ) -> None:
        self.repeats, self.acting = repeats, acting
        if acting:
            self.groups = groups_of(num_envs, group_size or num_envs)
        else:
            self.groups = stepped_groups(num_envs, collectors, num_collectors)
        self._episodes = EpisodeLog(num_envs, keeps_actions=restorable)
        self._watchdog, self.stop_is_expected = watchdog, False
        self._policies: Sequence[Acts] = ()
        self.lost = self._none_lost = np.zeros(num_envs, bool)
        self.why_lost = self.why_changed = ""
        self.kwargs, self.keeps_kwargs = UNCHANGED, True
        spec = GroupSpec(make, self.groups, seed, timeout, tuple(info_keys))
        self._collectors: Workers
        self._collectors, self.num_collectors = make_workers(
            collectors, spec, num_collectors, watchdog, allow_different=allow_different
        )
        self._recovery = Recovery(self._collectors, self.groups, self._episodes)
        self._is_remote = collectors != HERE  # groups in this process are never lost
        self._ask = self._recovery.ask if self._is_remote else self._collectors.ask
        abort = (lambda: None) if self._is_remote else self._collectors.interrupt
        self._queue = RolloutQueue(
            self._acted, self._current_explorations, abort, never_waits=never_waits
        )
        try:
            answers = self._ask(
                dict.fromkeys(range(len(self.groups)), (EnvironmentGroup.spaces, ()))
            )
            looked = [cloudpickle.loads(each) for each in answers.values()]
            if any(spaces != looked[0] for spaces in looked):
                raise RunError(f"{num_envs} environments must have the same spaces; got {looked}")
        except BaseException:
            self.close()
            raise
        self.observation_space, self.action_space = looked[0]

    def __len__(self) -> int:
        return len(self.lost)

    @property
    def observations(self) -> np.ndarray:
        """The current observations, `[N, O]`, float32."""
        return self._episodes.observations

    def set_policies(self, policies: Sequence[Acts]) -> None:
        """Sets the policy of each group."""
        self._policies = policies
        self._collectors.set_policies(dict(enumerate(policies)))

    def explorations(self) -> list[dict[str, Any]]:
        """Returns each group's exploration state, from before any rollout in progress."""
        return self._queue.explorations()

    def _current_explorations(self) -> list[dict[str, Any]]:
        return [policy.exploration.state() for policy in self._policies]

    @property
    def can_queue(self) -> bool:
        """Whether a rollout may be started while another one is in progress."""
        return not self._is_remote  # lost collectors must be recovered first

    def start(self) -> None:
        """Resets every environment to its current episode and replays the recorded actions."""
        self._begin()

    def step(self, actions: np.ndarray) -> Rollout:
        """Executes actions `[N, A]` in the environment's units, then resets finished episodes."""
        self._episodes.next_kwargs = kwargs = self.kwargs
        requests = {
            group: (EnvironmentGroup.rollout, (1, 0, actions[numbers.start : numbers.stop], kwargs))
            for group, numbers in enumerate(self.groups)
        }
        return self._taken(list(self._ask(requests).values()))

    def rollout(self, actor: RowPolicy | None, steps: int = 1, random_steps: int = 0) -> Rollout:
        """Runs T steps of every environment with its group's policy.

        Args:
            actor: Maps observations `[G, O]` to scores `[G, A]`; None keeps the current one.
            steps: T.
            random_steps: Number of initial steps with uniformly random actions.
        """
        self._episodes.next_kwargs = self.kwargs
        return self._taken(self._acted(actor, steps, random_steps, self.kwargs))

    @property
    def in_flight(self) -> RowPolicy | None:
        """The actor of the next rollout that `finish_rollout` returns; None without a rollout."""
        first = self._queue.first
        return first.actor if first else None

    def begin_rollout(self, actor: RowPolicy | None, steps: int, random_steps: int) -> None:
        """Starts a rollout in the background; `finish_rollout` waits for the result.

        Until then, the public state of this object does not change. If `can_queue`, the rollout may
        follow another one that is in progress. It then begins as soon as that one is complete.
        Nothing happens if another one is already waiting for this.

        Args:
            actor: As in `rollout`.
            steps: T, the same for all rollouts that follow each other.
            random_steps: Number of steps with random actions, counted from the beginning of the
                next rollout that `finish_rollout` returns.
        """
        # Episodes that a later rollout begins have the keyword arguments of this moment.
        kwargs = self.kwargs if self._queue.first else self._episodes.next_kwargs
        self._queue.begin(actor, steps, random_steps, kwargs)

    def finish_rollout(self) -> Rollout:
        """Waits for the first rollout in progress and returns it.

        Raises:
            InterruptedRolloutError: If a stop is expected and an environment waits for a reset
                without a time limit. The rollout remains in progress.
        """
        begun = self._queue.first
        parts = self._queue.take(lambda: self.stop_is_expected and self._awaits_reset)
        assert begun is not None
        self._episodes.next_kwargs = begun.kwargs
        rollout = self._taken(parts)
        following = self._queue.first
        if following is None or any(error for _, _, error in rollout.recreated):
            self._episodes.next_kwargs = self.kwargs
        else:
            self._episodes.next_kwargs = following.kwargs
        return rollout

    @property
    def _awaits_reset(self) -> bool:
        return self._watchdog is not None and self._watchdog.awaits_reset

    def _acted(
        self, actor: RowPolicy | None, steps: int, random_steps: int, kwargs: str
    ) -> list[Rollout]:
        request = EnvironmentGroup.rollout, (steps, random_steps, None, kwargs)
        return list(self._ask(dict.fromkeys(range(len(self.groups)), request), actor).values())

    def _taken(self, parts: list[Rollout]) -> Rollout:
        """Joins the rollouts of groups and records them in the episode log."""
        self.lost = self._none_lost
        if self._is_remote:
            self.lost = self._recovery.taken_lost()
            if self.lost.any():
                if self._episodes.keeps_actions:
                    self.why_lost, self.repeats = _NOT_REPEATED, False
                self._episodes.begin_fresh(self.lost)
            for policy, part in zip(self._policies, parts, strict=False):
                policy.exploration.restore(part.exploration)
        rollout = parts[0] if len(parts) == 1 else Rollout.joined(parts)
        self._episodes.count(rollout)
        for _, kept, error in reversed(rollout.recreated):  # the first one determines
            if error:
                self.kwargs = self._episodes.next_kwargs = kept
        return rollout

    def _begin(self, fresh: np.ndarray | None = None) -> np.ndarray:
        """Resets environments to their episodes and returns the returns of replays, `[N]`.

        Args:
            fresh: Mask `[N]` of environments that begin their next episode; others are not reset.
                None: all are reset to their current episodes.
        """
        requests = {
            group: self._episodes.begin(
                numbers, None if fresh is None else fresh[numbers.start : numbers.stop]
            )
            for group, numbers in enumerate(self.groups)
        }
        observations, returns = zip(*self._ask(requests).values(), strict=True)
        self._episodes.observations = np.concatenate(observations)
        if fresh is not None:
            self._episodes.begin_fresh(fresh)
        return np.concatenate(returns)

    def state(self) -> dict[str, Any]:
        """Returns the state for `restore`: episode numbers, actions, returns and observations.

        Contains "repeats" (False) only if episodes were found not to be reproducible, and "kwargs"
        only if keyword arguments were changed.
        """
        log = self._episodes
        state = log.state(self.action_space.shape or ())
        if {*log.kwargs, log.next_kwargs, self.kwargs} != {UNCHANGED}:
            state["kwargs"] = [*log.kwargs, log.next_kwargs, self.kwargs]
        return state | {"repeats": False} if self.repeats is False else state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores every environment to a saved state and marks failures in `lost`.

        An environment is lost, and starts a fresh episode, if its replay does not reproduce the
        observation and the return. All are lost if the number of environments has changed, or if
        actions were not recorded or must not be replayed.

        Raises:
            ValueError: If the numbers of episodes, action sequences and returns differ, or changed
                keyword arguments are not JSON objects.
            RunError: If an environment cannot be created with them.
        """
        log = self._episodes
        if self.keeps_kwargs and "kwargs" in state:
            *kwargs, log.next_kwargs, self.kwargs = map(_checked, state["kwargs"])
            log.kwargs = (kwargs + [log.next_kwargs] * len(self))[: len(self)]
        self.why_lost = log.restore(state, self.why_changed)
        if state.get("repeats") is False and not self.why_changed:
            self.repeats = False
        if self.why_lost:
            self.lost = np.ones(len(self), bool)
            self._start_fresh(self.lost)  # resets only once, because a reset may be expensive
            return
        returns = self._begin()
        lost = (self.observations != state["observations"]).any(axis=1)
        lost |= returns != log.returns
        self.lost, self.why_lost = lost, _NOT_REPEATED
        if lost.any():
            self.repeats = False
            self._start_fresh(lost)
        elif log.lengths.any() and self.repeats is not False:  # a match may be chance
            self.repeats = True

    def _start_fresh(self, where: np.ndarray) -> None:
        """Starts episodes with the next keyword arguments, in the mask `[N]` of environments.

        If an environment rejects these arguments, all return to those of environment 0. Only a
        later reset would otherwise have discovered that.
        """
        log, kept = self._episodes, self._episodes.kwargs[0]
        try:
            self._begin(where)
        except RunError as error:
            if log.next_kwargs == kept:
                raise
            log.next_kwargs = self.kwargs = kept
            self._begin(where)
            self.why_lost += f"; the newest arguments of set_env_kwargs are rejected: {error}"

    def expect_stop(self, *, expected: bool = True) -> None:
        """Shortens the wait for frozen collectors because the run was asked to stop.

        Frozen collectors are restarted, so that the current round can be completed. A reset without
        a time limit is not awaited.

        Args:
            expected: False restores the usual waits, to continue after a stop.
        """
        self.stop_is_expected = expected
        self._collectors.expect_stop(expected=expected)

    def close(self) -> None:
        """Closes every environment, after the current step of any rollout in progress.

        An environment that waits for a reset without a time limit is closed at once, so that the
        reset ends.
        """
        self._recovery.is_closing = True
        patience = self._collectors.interrupt()
        self._queue.wait(patience, lambda: self._awaits_reset)
        self._collectors.close()
        self._queue.close()


def _checked(kwargs: str) -> str:
    """Returns saved keyword arguments, which must be a JSON object."""
    if not isinstance(json.loads(kwargs), dict):
        raise ValueError(f"keyword arguments must be a JSON object; got {kwargs[:200]}")
    return kwargs
