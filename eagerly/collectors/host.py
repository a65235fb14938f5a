"""Groups of environments in one process, and what is asked of them.

A group does what an order says as a function of the order, the policy and the state of its
episodes. So it may stand anywhere, and whoever keeps the orders can have it done again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import cloudpickle
import gymnasium
import numpy as np

from eagerly.environments.group import Acts, EnvironmentGroup, GivenActions, Rollout
from eagerly.environments.watchdog import Watchdog
from eagerly.policies.numpy_actor import RowPolicy


class ActsByItself(Acts, Protocol):
    """Acts in a group with a policy and exploration, as `policies.RolloutPolicy` does."""

    def begin(
        self,
        policy: RowPolicy | None,
        random_steps: int,
        exploration: Mapping[str, Any],
        fresh: np.ndarray | None,
    ) -> None:
        """Takes what the next steps are made with, see `Act`."""

    def state(self) -> dict[str, Any]:
        """Returns the state of exploration."""


class Order(Protocol):
    """What is asked of a group."""

    def done(
        self, group: EnvironmentGroup, acting: ActsByItself | None, policy: RowPolicy | None
    ) -> Any:
        """Does it in a group, and returns the answer."""


@dataclass(frozen=True)
class Look:
    """Answers with the spaces of observations and actions, as cloudpickle writes them."""

    def done(
        self, group: EnvironmentGroup, acting: ActsByItself | None, policy: RowPolicy | None
    ) -> bytes:
        """Does it."""
        return cloudpickle.dumps((group.observation_space, group.action_space))


@dataclass(frozen=True)
class Begin:
    """Resets to episodes and repeats actions of them, see `EnvironmentGroup.begin`."""

    episodes: Sequence[int]
    actions: Sequence[np.ndarray] = ()

    def done(
        self, group: EnvironmentGroup, acting: ActsByItself | None, policy: RowPolicy | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Does it, and answers with observations and returns."""
        return group.begin(self.episodes, self.actions)


@dataclass(frozen=True)
class Step:
    """Makes one step with actions `[G, ...]` in the environments' units."""

    actions: np.ndarray

    def done(
        self, group: EnvironmentGroup, acting: ActsByItself | None, policy: RowPolicy | None
    ) -> tuple[Rollout, dict[str, Any]]:
        """Does it, and answers with what came of it."""
        return group.rollout(1, GivenActions(self.actions)), {}


@dataclass(frozen=True)
class Act:
    """Acts and steps T times.

    Attributes:
        steps: T.
        random_steps: So many of them are uniformly random at first.
        exploration: The state of the group's exploration.
        fresh: Where an episode began although none ended, `[G]` bool; None: nowhere.
    """

    steps: int
    random_steps: int
    exploration: Mapping[str, Any]
    fresh: np.ndarray | None = None

    def done(
        self, group: EnvironmentGroup, acting: ActsByItself | None, policy: RowPolicy | None
    ) -> tuple[Rollout, dict[str, Any]]:
        """Does it, and answers with what came of it and the state of exploration after it."""
        assert acting is not None
        acting.begin(policy, self.random_steps, self.exploration, self.fresh)
        return group.rollout(self.steps, acting), acting.state()


class Host:
    """Groups of environments in this process; see `Collectors`.

    Args:
        make: Makes one environment.
        groups: For the number of each group its environments.
        seed: Seed of the run.
        watchdog: Watches the environments; None watches nothing.
        watches_making: Whether it watches as they are made, too.
        info_keys: What of `info` each step hands on.
    """

    def __init__(
        self,
        make: Callable[[], gymnasium.Env[Any, Any]],
        groups: Mapping[int, range],
        seed: int,
        *,
        watchdog: Watchdog | None = None,
        watches_making: bool = True,
        info_keys: Sequence[str] = (),
    ) -> None:
        self._groups: dict[int, EnvironmentGroup] = {}
        self._acting: dict[int, ActsByItself] = {}
        self._policy: RowPolicy | None = None
        making = partial(EnvironmentGroup, make, watchdog=watchdog, info_keys=info_keys)
        count = sum(map(len, groups.values()))
        try:
            with ExitStack() as watched:
                if watchdog and watches_making:  # they cannot be broken off otherwise
                    watched.enter_context(watchdog.calling("making the environments", count))
                for index, numbers in groups.items():
                    self._groups[index] = making(numbers, seed)
        except BaseException:
            self.close()
            raise

    def equip(self, acting: Mapping[int, ActsByItself]) -> None:
        """Takes what acts in each group."""
        self._acting = dict(acting)

    def ask(self, orders: Mapping[int, Order], policy: RowPolicy | None = None) -> dict[int, Any]:
        """Does what is asked of each group, one after the other, and returns the answers.

        Args:
            orders: By the number of the group.
            policy: What they act with from now on; None: what they acted with before.
        """
        if policy is not None:
            self._policy = policy
        return {
            index: order.done(self._groups[index], self._acting.get(index), self._policy)
            for index, order in orders.items()
        }

    def hurry(self) -> float | None:
        """Breaks off rollouts before their next step, however long the one they are in takes."""
        for group in self._groups.values():
            group.is_closing = True
        return None

    def expect_stop(self) -> None:
        """Does nothing: no other process is waited for here."""

    def close(self) -> None:
        """Closes every environment."""
        for group in self._groups.values():
            group.close()


class RemoteHost(Host):
    """Groups in another process than the trainer's, which is sent policies by value.

    Args:
        make: Makes one environment.
        groups: For the number of each group its environments.
        seed: Seed of the run.
        timeout: Seconds that a step or reset may take; 0: for ever.
        hung: Tells where answers are waited for that one took longer, and ends this process.
        info_keys: What of `info` each step hands on.
    """

    def __init__(
        self,
        make: Callable[[], gymnasium.Env[Any, Any]],
        groups: Mapping[int, range],
        seed: int,
        timeout: float,
        hung: Callable[[str], None],
        info_keys: Sequence[str],
    ) -> None:
        self._watchdog = Watchdog(timeout, lambda: "", tell=hung)
        # Not as they are made: that includes imports, and who waits for it knows a limit.
        super().__init__(
            make,
            groups,
            seed,
            watchdog=self._watchdog,
            watches_making=False,
            info_keys=info_keys,
        )

    def take(
        self, acting: bytes | None, orders: Mapping[int, Order], policy: bytes | None
    ) -> dict[int, Any]:
        """Does what is asked, see `ask`; what acts and the policy come as cloudpickle writes them.

        Args:
            acting: What acts in each group from now on; None: as before.
            orders: By the number of the group.
            policy: The policy from now on; None: as before.
        """
        if acting is not None:
            self.equip(cloudpickle.loads(acting))
        return self.ask(orders, None if policy is None else cloudpickle.loads(policy))

    def close(self) -> None:
        """Closes every environment, and watches no longer."""
        super().close()
        self._watchdog.close()
