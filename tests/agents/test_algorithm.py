"""The base class of algorithms stays small and contains nothing specific to one algorithm."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from eagerly.agents import agent_class, agent_names
from eagerly.agents.algorithm import Algorithm, algorithm_errors
from eagerly.agents.td3 import TD3
from eagerly.errors import UsageError
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


class Misfit(TD3):
    """Overrides a method with too few parameters, and uses an undefined name."""

    def target(self, batch: Any, next_action: Any) -> Any:  # type: ignore[override]
        return {}["missing"]

    def value(self, *inputs: Any, strict: bool = True) -> Any:
        return inputs


def raising(message: str) -> Callable[[Any], Any]:
    def call(agent: Any) -> Any:
        raise TypeError(message)

    return call


@pytest.mark.parametrize(
    ("given", "message"),
    [
        # A traced update calls copies of the methods, with other names.
        (
            raising("outer_factory.<locals>.tf__target() takes 3 positional arguments but 4"),
            r"Misfit.target \(.*/test_algorithm.py:\d+\) takes 3 positional arguments but 4: "
            r"define target\(self, batch, next_action, random\), as in TD3$",
        ),
        (
            lambda agent: agent.target(1, 2, 3),
            r"Misfit.target \(.*/test_algorithm.py:\d+\) takes 3 positional arguments but 4 were",
        ),
        (
            lambda agent: agent.target(1, 2),
            r"KeyError: 'missing' \(.*/test_algorithm.py:\d+, in target\)$",
        ),
        # The signature of this method is compatible.
        (raising("Misfit.value() got an unexpected keyword"), r"TypeError: Misfit.value\(\) got"),
    ],
)
def test_an_error_in_a_custom_algorithm_names_its_class_method_and_line(
    given: Callable[[Any], Any], message: str
) -> None:
    with (
        pytest.raises(UsageError, match=f"^updating Misfit failed: {message}"),
        algorithm_errors(Misfit, "updating"),
    ):
        given(object.__new__(Misfit))
    with pytest.raises(KeyError), algorithm_errors(TD3, "updating"):
        raise KeyError
