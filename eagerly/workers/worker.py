"""Groups of environments in one process.

They execute requests from the same process or from another one.
"""

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

# A method of `EnvironmentGroup`, or a function whose first argument is a group, and its other
# arguments.
Request = tuple[Callable[..., Any], tuple[Any, ...]]


class Worker:
    """Groups of environments in this process; see `Workers`.

    Args:
        make: Creates the environment with a given index.
        groups: Environment indices by group index.
        seed: Seed of the run.
        watchdog: Monitors the environments; None disables monitoring.
        watches_making: Whether the creation of environments is monitored too.
        info_keys: Entries of `info` kept for each step.
    """

    def __init__(
        self,
        make: Callable[[int], gymnasium.Env[Any, Any]],
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
                if watchdog and watches_making:  # only the watchdog can stop a hanging creation
                    watched.enter_context(watchdog.calling("creating the environments", count))
                for index, numbers in groups.items():
                    self._groups[index] = make_group(numbers, seed)
        except BaseException:
            self.close()
            raise

    def set_policies(self, policies: Mapping[int, Acts]) -> None:
        """Sets the policy of each group."""
        self._actor = None  # new policies have no actor yet
        for index, policy in policies.items():
            self._groups[index].policy = policy

    def ask(
        self, requests: Mapping[int, Request], actor: RowPolicy | None = None
    ) -> dict[int, Any]:
        """Calls a method of each group in turn and returns the results.

        Args:
            requests: Requests by group index.
            actor: Used by all policies from now on, to map observations to scores; None keeps the
                current actor.
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
        """Aborts rollouts before their next step, without a time limit for the current step."""
        for group in self._groups.values():
            group.is_closing = True
        return None

    def expect_stop(self, *, expected: bool) -> None:
        """Does nothing: this worker waits for no other process."""

    def close(self) -> None:
        """Closes every environment."""
        for group in self._groups.values():
            group.close()


class RemoteWorker(Worker):
    """Groups in a process other than the trainer's. Policies arrive serialized.

    Args:
        make: Creates the environment with a given index.
        groups: Environment indices by group index.
        seed: Seed of the run.
        timeout: Seconds allowed for a step or reset; 0: unlimited.
        hung: Reports a timeout to the trainer and ends this process.
        info_keys: Entries of `info` kept for each step.
    """

    def __init__(
        self,
        make: Callable[[int], gymnasium.Env[Any, Any]],
        groups: Mapping[int, range],
        seed: int,
        timeout: float,
        hung: Callable[[str], None],
        info_keys: Sequence[str],
    ) -> None:
        self._watchdog = Watchdog(timeout, lambda: "", tell=hung)
        # Creation is not monitored: it includes imports, and the trainer limits its duration.
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
        """Executes requests, see `ask`, and adds the exploration state to rollouts.

        Args:
            policies: New policies of the groups, serialized with cloudpickle; None keeps the
                current ones.
            requests: Requests by group index.
            actor: New actor for all policies, serialized with cloudpickle; None keeps the current
                one.
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
        """Closes every environment and stops the watchdog."""
        super().close()
        self._watchdog.close()
