"""Collecting in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eagerly.collectors.host import ActsByItself, Host, Order, Policy


class Here:
    """All groups in this process; see `Collectors`.

    Args:
        host: Has the groups.
    """

    def __init__(self, host: Host) -> None:
        self._host = host

    def equip(self, acting: Sequence[ActsByItself]) -> None:
        """Takes what acts in each group."""
        self._host.equip(dict(enumerate(acting)))

    def ask(self, orders: Mapping[int, Order], policy: Policy | None = None) -> dict[int, Any]:
        """Does what is asked of groups."""
        return self._host.ask(orders, policy)

    def hurry(self) -> None:
        """Has rollouts end after their next step."""
        self._host.hurry()

    def close(self) -> None:
        """Closes every environment."""
        self._host.close()
