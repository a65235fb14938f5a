"""Policies as users call them: what they refuse."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box

from eagerly.policies.policy import Policy
from eagerly.spaces import Actions, Observations


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.deepcopy, copy.copy])
def test_a_policy_that_is_pickled_or_copied_says_what_to_do_instead(
    duplicate: Callable[[Any], Any],
) -> None:
    box = Box(-1, 1, (2,), np.float32)
    policy = Policy(lambda rows: rows, Observations(box), Actions(box), 0)
    for held in (policy, [policy]) if duplicate is not copy.copy else (policy,):
        with pytest.raises(
            TypeError, match=r"Send the run directory instead, and call eagerly\.lo"
        ):
            duplicate(held)
    if duplicate is not copy.copy:
        with pytest.raises(TypeError, match="a policy cannot be pickled or copied"):
            duplicate(policy.begin_episodes())
