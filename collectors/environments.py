"""N environments in groups: stepping them, and bringing them back into their episodes."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any, Protocol

import cloudpickle
import gymnasium
import numpy as np

from eagerly.collectors.episodes import EpisodeLog, FinishedEpisode
from eagerly.collectors.host import Act, ActsByItself, Begin, Look, Order, Policy, Step
from eagerly.collectors.opening import HERE, Making, opened
from eagerly.environments.group import Rollout
from eagerly.environments.watchdog import Watchdog
from eagerly.environments.workers import LostError
from eagerly.errors import RunError

_log = logging.getLogger(__name__)
_TRIES = 5  # after which a collector that was lost at each of them is given up
_PATIENCE = 5.0  # seconds that closing waits for a rollout that has begun
_NOT_REPEATED = "they did not come back to where they were"


@dataclass(frozen=True)
class VectorStep:
    """What a step of N environments gave.

    Attributes:
        acted_upon: `[N, O]`, the observations before it.
        observations: `[N, O]`; where an episode ended the real last one.
        rewards: `[N]`.
        terminated, truncated: `[N]` bool.
        ended: Which episodes did one or the other, `[N]` bool.
        infos: The numbers in `info` of each episode that ended.
        episodes: The episodes that ended, in the order of `infos`.
        kept: Of each environment what `info_keys` names and `info` has, `[N]`; None without any.
    """

    acted_upon: np.ndarray
    observations: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    ended: np.ndarray
    infos: list[dict[str, float]]
    episodes: list[FinishedEpisode]
    kept: list[dict[str, Any]] | None = None


@dataclass(frozen=True)
class Round:
    """What groups need to act in the next steps.

    Attributes:
        steps: T.
        random_steps: So many of them are uniformly random at first.
        explorations: The state of each group's exploration.
        policy: Maps observations `[G, O]` to scores `[G, A]`.
    """

    steps: int
    random_steps: int
    explorations: Sequence[Mapping[str, Any]]
    policy: Policy | None


class Collectors(Protocol):
    """Where groups of environments are."""

    def equip(self, acting: Sequence[ActsByItself]) -> None:
        """Takes what acts in each group."""

    def ask(self, orders: Mapping[int, Order], policy: Policy | None = None) -> dict[int, Any]:
        """Does what is asked of groups, and waits for it.

        Args:
            orders: By the number of the group.
            policy: What groups act with from now on; None: as before.

        Returns:
            The answer of each group, or a `LostError` where its collector was lost.

        Raises:
            RunError: If an environment fails, in what way it does.
        """

    def hurry(self) -> None:
        """Has rollouts end early where they can, because nobody waits for them."""

    def close(self) -> None:
        """Closes every environment."""


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
        collectors: Where groups are: "here", "processes", "ray" or "ray:HOST:PORT"; the bits are
            the same.
        num_collectors: How many processes have them; 0: one for each group, at most as many as
            there are cores.
        allow_different: Whether collectors on other machines may have other versions.
        watchdog: Watches environments in this process; None watches nothing.
        timeout: Seconds that a step or reset may take in another process; 0: for ever.
        restorable: Whether the actions of the episodes in progress are kept, to repeat them.
        repeats: Whether it was seen that they repeat themselves from their seed, if that was
            looked at.
        info_keys: What of `info` each step hands on, in `VectorStep.kept`.

    Attributes:
        groups: The numbers of each group's environments.
        num_collectors: How many there are.
        repeats: As given; after `restore` whether episodes that were repeated came back. Once it
            is False it stays so, also in `state`.
        observations: `[N, O]`, float32, the current ones.
        explorations: The state of each group's exploration after the newest rollout.
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
        collectors: str = HERE,
        num_collectors: int = 0,
        allow_different: bool = False,
        watchdog: Watchdog | None = None,
        timeout: float = 0.0,
        restorable: bool = True,
        repeats: bool | None = None,
        info_keys: Sequence[str] = (),
    ) -> None:
        self.repeats, self._restorable = repeats, restorable
        every = range(num_envs)
        size = group_size or num_envs
        self.groups = [every[first : first + size] for first in range(0, num_envs, size)]
        self._log = EpisodeLog(num_envs, keeps_actions=restorable)
        self._thread: ThreadPoolExecutor | None = None
        self._begun: Future[list[Any]] | None = None
        self._is_closing = False
        self.lost, self.why_lost = np.zeros(num_envs, bool), ""
        self._lost_now = np.zeros(num_envs, bool)
        self.observations = np.empty((num_envs, 0), np.float32)
        self.explorations: list[Mapping[str, Any]] = []
        making = Making(make, self.groups, seed, timeout, tuple(info_keys))
        self._collectors: Collectors
        self._collectors, self.num_collectors = opened(
            collectors, making, num_collectors, watchdog, allow_different=allow_different
        )
        try:
            looked = [cloudpickle.loads(each) for each in self._ask([Look() for _ in self.groups])]
            if any(spaces != looked[0] for spaces in looked):
                raise RunError(f"{num_envs} environments do not fit together: {looked}")
        except BaseException:
            self.close()
            raise
        self.observation_space, self.action_space = looked[0]

    def __len__(self) -> int:
        return len(self.lost)

    def equip(self, acting: Sequence[ActsByItself]) -> None:
        """Takes what acts in each group."""
        self._collectors.equip(acting)

    def start(self) -> None:
        """Resets every environment to its first episode."""
        self._begin([self._log.begin(numbers) for numbers in self.groups])

    def step(self, actions: np.ndarray, steps_left: int = 0) -> VectorStep:
        """Steps with actions `[N, A]` in the environment's units, then resets what has ended.

        Args:
            actions: The actions.
            steps_left: How many more steps follow in the same round.
        """
        shares = [actions[numbers.start : numbers.stop] for numbers in self.groups]
        answers = self._ask([Step(share) for share in shares])
        ((_, step),) = self._steps(answers, steps_left)
        return step

    def begin_rollout(self, made: Round) -> None:
        """Lets each group act and step while this thread goes on; `rollout` waits for it.

        Until then everything here is as it was before.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "collector")
        self._begun = self._thread.submit(self._acted, made)

    def rollout(self, made: Round | None = None) -> Iterator[tuple[np.ndarray, VectorStep]]:
        """Lets each group act and step, or waits for the rollout that has begun, without a round.

        Yields:
            For each step the actions as the agent makes them, and what came of it.
        """
        if made is None:
            begun, self._begun = self._begun, None
            assert begun is not None
            answers = begun.result()
        else:
            answers = self._acted(made)
        self.explorations = [exploration for _, exploration in answers]
        yield from self._steps(answers)

    def _acted(self, made: Round) -> list[tuple[Rollout, Mapping[str, Any]]]:
        orders = [Act(made.steps, made.random_steps, each) for each in made.explorations]
        return self._ask(orders, made.policy)

    def _ask(self, orders: Sequence[Order], policy: Policy | None = None) -> list[Any]:
        """Asks every group; those that are lost are brought back and asked again."""
        wanted = dict(enumerate(orders))
        answers = self._collectors.ask(wanted, policy)
        tries: Counter[int] = Counter()
        while lost := {g: each for g, each in answers.items() if isinstance(each, LostError)}:
            tries.update(lost.keys())
            why = "; ".join(sorted({str(error) for error in lost.values()}))
            if self._is_closing or max(tries.values()) == _TRIES:
                raise RunError(f"{why}, as it did {_TRIES} times in a row")
            _log.warning("%s; it is started again, and its episodes are repeated", why)
            answers |= self._ask_again({group: wanted[group] for group in lost}, policy)
        return [answers[group] for group in wanted]

    def _ask_again(self, orders: Mapping[int, Order], policy: Policy | None) -> dict[int, Any]:
        """Brings groups back into their episodes, and asks what they were asked."""
        again, answers = dict(orders), {}
        moving = [group for group, order in orders.items() if isinstance(order, Act | Step)]
        begun = self._collectors.ask({each: self._log.begin(self.groups[each]) for each in moving})
        for group, answer in begun.items():
            if isinstance(answer, LostError):
                answers[group] = answer
                continue
            numbers = self.groups[group]
            fresh = self._differing(numbers, answer)
            if fresh.any():
                found = self._collectors.ask({group: self._log.begin(numbers, fresh)})[group]
                if isinstance(found, LostError):
                    answers[group] = found
                    continue
                _log.warning(
                    "environments %s do not come back into their episodes: fresh ones begin",
                    [number for number, new in zip(numbers, fresh, strict=True) if new],
                )
                again[group] = replace(orders[group], fresh=fresh)  # type: ignore[type-var]
            self._lost_now[numbers.start : numbers.stop] = fresh
        asked = {group: order for group, order in again.items() if group not in answers}
        return answers | self._collectors.ask(asked, policy)

    def _differing(self, numbers: range, begun: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Says where a group did not come back to where it was, `[G]` bool."""
        observations, returns = begun
        own = slice(numbers.start, numbers.stop)
        if not self._restorable:
            return np.ones(len(numbers), bool)
        differ: np.ndarray = (observations != self.observations[own]).any(axis=1)
        return differ | (returns != self._log.returns[own])

    def _steps(
        self, answers: Sequence[tuple[Rollout, Any]], steps_left: int = 0
    ) -> Iterator[tuple[np.ndarray, VectorStep]]:
        """Joins the rollouts of groups, and counts step by step what episodes have done."""
        self.lost, self._lost_now = self._lost_now, np.zeros(len(self), bool)
        if self.lost.any():
            self.why_lost, self.repeats = _NOT_REPEATED, False
            self._log.begin_next(self.lost)
        rollouts = [rollout for rollout, _ in answers]
        observations, actions, executed, rewards, terminated, truncated = (
            _joined([getattr(each, name) for each in rollouts])
            for name in (
                "observations", "actions", "executed", "rewards", "terminated", "truncated"
            )
        )  # fmt: skip
        every_ended = [each.ended() for each in rollouts]
        following = _joined(
            [each.next_observations(end) for each, end in zip(rollouts, every_ended, strict=True)]
        )
        infos = _by_step(rollouts, every_ended)
        ended = _joined(every_ended)
        kept = [each.kept for each in rollouts if each.kept is not None]
        self.observations = observations[-1]
        for step, (acted, result) in enumerate(zip(actions, following, strict=True)):
            left = steps_left + len(actions) - 1 - step
            yield (
                acted,
                VectorStep(
                    observations[step],
                    result,
                    rewards[step],
                    terminated[step],
                    truncated[step],
                    ended[step],
                    infos[step],
                    self._log.count(executed[step], rewards[step], ended[step], left),
                    [each for group in kept for each in group[step]] if kept else None,
                ),
            )

    def _begin(self, orders: Sequence[Begin]) -> np.ndarray:
        """Brings every group into episodes; returns the returns reached, `[N]`."""
        answers = self._ask(orders)
        self.observations = np.concatenate([observations for observations, _ in answers])
        return np.concatenate([returns for _, returns in answers])

    def state(self) -> dict[str, Any]:
        """Returns what `restore` needs: episode numbers, actions and returns, the observations.

        Under "repeats" it has False, if it was seen that episodes do not repeat themselves.
        """
        state = {
            "episodes": list(self._log.episodes),
            "actions": self._log.actions(self.action_space.shape or ()),
            "returns": self._log.returns.tolist(),
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
        log = self._log
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

    def close(self) -> None:
        """Closes every environment, once those of a rollout that has begun have made their step."""
        self._is_closing = True
        self._collectors.hurry()
        if self._begun is not None:
            wait([self._begun], _PATIENCE)
        self._collectors.close()
        if self._thread is not None:
            self._thread.shutdown()


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Joins what there is of groups, `[T, G, ...]` each, in the order of the environments."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _by_step(
    rollouts: Sequence[Rollout], ended: Sequence[np.ndarray]
) -> list[list[dict[str, float]]]:
    """Sorts the infos of episodes that ended by their step, then by their environment."""
    found: list[list[dict[str, float]]] = [[] for _ in ended[0]]
    for rollout, ends in zip(rollouts, ended, strict=True):
        if rollout.infos:
            for step, info in zip(np.nonzero(ends)[0].tolist(), rollout.infos, strict=True):
                found[step].append(info)
    return found
