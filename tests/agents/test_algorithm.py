"""The base class of algorithms stays small and contains nothing specific to one algorithm."""

from __future__ import annotations

import inspect
from collections import Counter

from eagerly.agents import agent_class, agent_names
from eagerly.agents.algorithm import Algorithm
from tests.algorithms.test_algorithms import ALGORITHMS
from tests.helpers import ROOT


def test_no_member_is_overridden_by_only_one_algorithm() -> None:
    members = {*vars(Algorithm), *inspect.get_annotations(Algorithm)}
    members = {name for name in members if not name.startswith("_")}
    assert len(members) <= 10
    names = (*agent_names(), *(f"tests.algorithms.{name}" for name in ALGORITHMS))
    kinds = [agent_class(name) for name in names]
    overridden = Counter(name for kind in kinds for name in members & vars(kind).keys())
    # Algorithms call `critic_loss`, which justifies it even with a single override. The other
    # members are called only by `Agent`, so at least two algorithms must override each.
    assert overridden.pop("critic_loss") == 1
    assert overridden["update"] > overridden["build"] > 1
    assert min(overridden.values()) > 1


def test_few_files_outside_td7_mention_it() -> None:
    paths = [
        path
        for folder in ("agents", "buffers", "eagerly", "networks", "scripts")
        for path in (ROOT / folder).rglob("*.py")
        if not any(parent.is_symlink() for parent in path.parents)
    ]
    named = {
        path.relative_to(ROOT).as_posix()
        for path in paths
        if "td7" in (text := path.read_text(encoding="utf-8")) or "TD7" in text
    }
    own = {"agents/td7.py", "agents/td7_config.py", "networks/sale.py"}
    # These files list the algorithms or the public names, or cite the TD7 paper in help texts.
    others = {"agents/__init__.py", "eagerly/algorithms.py", "eagerly/api.py"}
    others |= {"eagerly/storage/config.py"}
    assert named - own == others
