"""Groups of environments in one process, and calling their methods from there or elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import cloudpickle
import gymnasium

from eagerly.environments.group import Acts, EnvironmentGroup, Rollout
from eagerly.environments.watchdog import Watchdog
from eagerly.policies.numpy_actor import RowPolicy

# A method of `EnvironmentGroup`, or another function of a group, and its further arguments.
Request = tuple[Callable[..., Any], tuple[Any, ...]]


class Worker:
    """Groups of environments in this process; see `Workers`.

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
        self._actor: RowPolicy | None = None
        make_group = partial(EnvironmentGroup, make, watchdog=watchdog, info_keys=info_keys)
        count = sum(map(len, groups.values()))
        try:
            with ExitStack() as watched:
                if watchdog and watches_making:  # they cannot be broken off otherwise
                    watched.enter_context(watchdog.calling("making the environments", count))
                for index, numbers in groups.items():
                    self._groups[index] = make_group(numbers, seed)
        except BaseException:
            self.close()
            raise

    def set_policies(self, policies: Mapping[int, Acts]) -> None:
        """Takes the policy of each group."""
        self._actor = None  # which they do not have yet
        for index, policy in policies.items():
            self._groups[index].policy = policy

    def ask(
        self, requests: Mapping[int, Request], actor: RowPolicy | None = None
    ) -> dict[int, Any]:
        """Calls a method of each group, one after the other, and returns the answers.

        Args:
            requests: By the number of the group.
            actor: Maps observations to scores in all policies from now on; None: as before.
        """
        if actor is not None and actor is not self._actor:
            self._actor = actor
            for group in self._groups.values():
                group.policy.row_policy = actor  # type: ignore[union-attr]
        return {
            index: function(self._groups[index], *arguments)
            for index, (function, arguments) in requests.items()
        }

    def interrupt(self) -> float | None:
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


class RemoteWorker(Worker):
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
        self, policies: bytes | None, requests: Mapping[int, Request], actor: bytes | None
    ) -> dict[int, Any]:
        """Does what is asked, see `ask`, and adds the state of exploration to rollouts.

        Args:
            policies: Those of all groups from now on, as cloudpickle writes them; None: as before.
            requests: By the number of the group.
            actor: That of all policies from now on, as well; None: as before.
        """
        if policies is not None:
            self.set_policies(cloudpickle.loads(policies))
        answers = self.ask(requests, None if actor is None else cloudpickle.loads(actor))
        for index, answer in answers.items():
            policy = self._groups[index].policy
            if policy is not None and isinstance(answer, Rollout):
                answer.exploration = policy.exploration.state()
        return answers

    def close(self) -> None:
        """Closes every environment, and watches no longer."""
        super().close()
        self._watchdog.close()
