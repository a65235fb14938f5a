"""N environments in groups: stepping them, and bringing them back into their episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import cloudpickle
import gymnasium
import numpy as np

from eagerly.environments.group import Acts, EnvironmentGroup, Rollout
from eagerly.environments.watchdog import Watchdog
from eagerly.errors import RunError
from eagerly.policies.numpy_actor import RowPolicy
from eagerly.workers.episode_log import EpisodeLog
from eagerly.workers.group_specs import HERE, GroupSpec, groups_of, make_workers, stepped_groups
from eagerly.workers.recovery import Recovery, Workers
from eagerly.workers.worker import Request

_NOT_REPEATED = "they did not come back to where they were"


class Environments:
    """N copies of an environment in groups, each episode reset with a seed of its own.

    Groups act and are stepped by themselves, wherever they are. What they have done since their
    episodes began is kept here, so that any of them can be brought back to where it is: a group
    whose collector is lost is made again, repeats its episodes, and is asked again.

    Args:
        make: Makes one of them.
        num_envs: N.
        seed: Seed of the run; every episode's seed derives from it.
        group_size: G, the environments of a group; the last group may have fewer. 0: all of them.
        acting: Whether groups act by themselves. Otherwise they are only stepped, and there is one
            for each collector, whatever `group_size` is.
        collectors: Where groups are: "here", "processes", "ray" or "ray:HOST:PORT"; the bits are
            the same.
        num_collectors: How many processes have them; 0: one for each group, or environment where
            groups do not act, at most as many as there are cores.
        allow_different: Whether collectors on other machines may have other versions.
        watchdog: Watches environments in this process; None watches nothing.
        timeout: Seconds that a step or reset may take in another process; 0: for ever.
        restorable: Whether the actions of the episodes in progress are kept, to repeat them.
        repeats: Whether it was seen that they repeat themselves from their seed, if that was
            looked at.
        info_keys: What of `info` each step hands on, in `Rollout.kept`.

    Attributes:
        groups: The numbers of each group's environments.
        acting: As given.
        num_collectors: How many there are.
        repeats: As given; after `restore` whether episodes that were repeated came back. Once it
            is False it stays so, also in `state`.
        lost: `[N]` bool, which of them the newest `restore`, `step` or `rollout` could not bring
            back into their episodes: they began fresh ones.
        why_lost: Why, in words.
    """

    def __init__(
        self,
        make: Callable[[], gymnasium.Env[Any, Any]],
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
    ) -> None:
        self.repeats, self._restorable, self.acting = repeats, restorable, acting
        if acting:
            self.groups = groups_of(num_envs, group_size or num_envs)
        else:
            self.groups = stepped_groups(num_envs, collectors, num_collectors)
        self._episodes = EpisodeLog(num_envs, keeps_actions=restorable)
        self._thread: ThreadPoolExecutor | None = None
        self._begun: Future[list[Rollout]] | None = None
        self._policies: Sequence[Acts] = ()
        self._explorations: list[Any] = []  # before a rollout that has begun
        self.lost = self._none_lost = np.zeros(num_envs, bool)
        self.why_lost = ""
        spec = GroupSpec(make, self.groups, seed, timeout, tuple(info_keys))
        self._collectors: Workers
        self._collectors, self.num_collectors = make_workers(
            collectors, spec, num_collectors, watchdog, allow_different=allow_different
        )
        self._recovery = Recovery(
            self._collectors, self.groups, self._episodes, restorable=restorable
        )
        self._is_remote = collectors != HERE  # nothing is lost in this process
        self._ask = self._recovery.ask if self._is_remote else self._collectors.ask
        try:
            answers = self._ask(
                dict.fromkeys(range(len(self.groups)), (EnvironmentGroup.spaces, ()))
            )
            looked = [cloudpickle.loads(each) for each in answers.values()]
            if any(spaces != looked[0] for spaces in looked):
                raise RunError(f"{num_envs} environments do not fit together: {looked}")
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
        """Takes the policy of each group, with which it acts."""
        self._policies = policies
        self._collectors.set_policies(dict(enumerate(policies)))

    def explorations(self) -> list[dict[str, Any]]:
        """Returns the state of each group's exploration, before a rollout that has begun."""
        if self._begun is not None:
            return self._explorations
        return [policy.exploration.state() for policy in self._policies]

    def start(self) -> None:
        """Resets every environment to its first episode."""
        self._begin([self._episodes.begin(numbers) for numbers in self.groups])

    def step(self, actions: np.ndarray) -> Rollout:
        """Steps with actions `[N, A]` in the environment's units, then resets what has ended."""
        requests = {
            group: (EnvironmentGroup.rollout, (1, 0, actions[numbers.start : numbers.stop]))
            for group, numbers in enumerate(self.groups)
        }
        return self._taken(list(self._ask(requests).values()))

    def rollout(self, actor: RowPolicy | None, steps: int = 1, random_steps: int = 0) -> Rollout:
        """Lets each group act and step.

        Args:
            actor: Maps observations `[G, O]` to scores `[G, A]`; None: as before.
            steps: T, the steps of each environment.
            random_steps: How many of them are uniformly random at first.
        """
        return self._taken(self._acted(actor, steps, random_steps))

    def begin_rollout(self, actor: RowPolicy | None, steps: int, random_steps: int) -> None:
        """Begins what `rollout` does in a thread, until `finish_rollout` waits for it.

        Until then everything here is as it was before.
        """
        self._explorations = self.explorations()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "collector")
        self._begun = self._thread.submit(self._acted, actor, steps, random_steps)

    def finish_rollout(self) -> Rollout:
        """Waits for the rollout that has begun."""
        assert self._begun is not None
        begun, self._begun = self._begun, None
        return self._taken(begun.result())

    def _acted(self, actor: RowPolicy | None, steps: int, random_steps: int) -> list[Rollout]:
        request = EnvironmentGroup.rollout, (steps, random_steps)
        return list(self._ask(dict.fromkeys(range(len(self.groups)), request), actor).values())

    def _taken(self, parts: list[Rollout]) -> Rollout:
        """Joins the rollouts of groups, and counts what episodes have done."""
        self.lost = self._none_lost
        if self._is_remote:
            self.lost = self._recovery.taken_lost()
            if self.lost.any():
                if self._restorable:
                    self.why_lost, self.repeats = _NOT_REPEATED, False
                self._episodes.begin_next(self.lost)
            for policy, part in zip(self._policies, parts, strict=False):
                policy.exploration.restore(part.exploration)
        rollout = parts[0] if len(parts) == 1 else Rollout.joined(parts)
        self._episodes.count(rollout)
        return rollout

    def _begin(self, requests: Sequence[Request]) -> np.ndarray:
        """Brings every group into episodes; returns the returns reached, `[N]`."""
        answers = self._ask(dict(enumerate(requests))).values()
        observations, returns = zip(*answers, strict=True)
        self._episodes.observations = np.concatenate(observations)
        return np.concatenate(returns)

    def state(self) -> dict[str, Any]:
        """Returns what `restore` needs: episode numbers, actions and returns, the observations.

        Under "repeats" it has False, if it was seen that episodes do not repeat themselves.
        """
        state = {
            "episodes": list(self._episodes.episodes),
            "actions": self._episodes.actions(self.action_space.shape or ()),
            "returns": self._episodes.returns.tolist(),
            "restorable": self._restorable,
            "observations": self.observations,
        }
        return state | {"repeats": False} if self.repeats is False else state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Brings every environment back to where `state` was taken, and says in `lost` which not.

        An environment is lost, and begins a fresh episode, if it did not come back to the same
        observation with the same return, because it does not repeat itself from a seed; all of them
        are if their number has changed, or actions are not to be repeated.

        Raises:
            ValueError: If it is the state of other environments.
        """
        count = len(self)
        episodes = [int(number) for number in state["episodes"]]
        if not len(episodes) == len(state["actions"]) == len(state["returns"]):
            raise ValueError(f"the episodes {episodes} have not all their actions and returns")
        log = self._episodes
        log.episodes = (episodes + [0] * count)[:count]
        if state.get("repeats") is False:
            self.repeats = False
        self.why_lost = ""
        if not self._restorable:
            self.why_lost = "--restore-episodes no"
        elif not state["restorable"]:
            self.why_lost = "their actions were not kept, with --restore-episodes no"
        elif len(episodes) != count:
            self.why_lost = f"there were {len(episodes)} environments"
        if self.why_lost:
            log.begin_next(np.ones(count, bool))
            self.start()  # one reset: it may be expensive
            self.lost = np.ones(count, bool)
            return
        log.restore(state)
        returns = self._begin([log.begin(numbers) for numbers in self.groups])
        lost = (self.observations != state["observations"]).any(axis=1)
        lost |= returns != log.returns
        if lost.any():
            self.repeats = False
            log.begin_next(lost)
            self.start()
        elif log.lengths.any() and self.repeats is not False:  # one may come back by chance
            self.repeats = True
        self.lost, self.why_lost = lost, _NOT_REPEATED

    def expect_stop(self) -> None:
        """Shortens the wait for collectors that are frozen, because the run is to stop.

        They are started again, so that the round becomes complete.
        """
        self._collectors.expect_stop()

    def close(self) -> None:
        """Closes every environment, once those of a rollout that has begun have made their step."""
        self._recovery.is_closing = True
        patience = self._collectors.interrupt()
        if self._begun is not None:
            wait([self._begun], patience)
        self._collectors.close()
        if self._thread is not None:
            self._thread.shutdown()
