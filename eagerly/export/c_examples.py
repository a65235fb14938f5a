"""Writes `examples.c`, a program that checks an exported C policy against its examples."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from eagerly.export import c_source as source
from eagerly.export.examples import Steps, spread
from eagerly.export.integers import plan, run
from eagerly.export.runner.examples import step_of
from eagerly.export.verification import C_TOLERANCE
from eagerly.policies.architecture import MemoryCore
from eagerly.policies.heads import ActionHead
from eagerly.policies.integer_grids import grid, integers
from eagerly.policies.network import ActorNetwork
from eagerly.policies.numpy_actor import normalized

COUNT = 100  # examples per function
# `policy_act` scales observations in float32, the policy in float64. An observation closer than
# this to a rounding boundary (in quantization steps) may therefore round differently.
MARGIN = 1e-4
TIE = 1e-4  # difference of the two best scores of a choice below which C may choose the other

_PROGRAM = """\
/* Replays examples of the policy; exits with 1 if policy.c returns different actions. */
#include <stdio.h>

#include "policy.h"

#if POLICY_OBSERVATION_SIZE != OBSERVATIONS || POLICY_ACTION_SIZE != ACTIONS
#error "examples.c was generated for a policy with different sizes"
#endif

PARTS
int main(void)
{
    int wrong = 0;
CALLS
    return wrong != 0;
}
"""

# Comparisons are negated so that a NaN counts as different.
_REPLAY_ACTIONS = """\
/* Returns the number of policy_act rows that differ by more than the tolerance. */
static int replay_actions(void)
{
    double largest = 0.0;
    int row, wrong = 0;
BEFORE    for (row = 0; row < ROWS; ++row) {
        float action[POLICY_ACTION_SIZE];
        int differs = 0;
ACT
        for (int i = 0; i < POLICY_ACTION_SIZE; ++i) {
            const float expected = actions[row * POLICY_ACTION_SIZE + i];
            double difference = (double)action[i] - (double)expected;
            difference = difference < 0.0 ? -difference : difference;
            if (largest == largest && !(difference <= largest))
                largest = difference;
            if (!(difference <= (double)tolerance[i]))
                differs = 1;
        }
        wrong += differs;
    }
    printf("%d of %d rows differ, largest difference %g\\n", wrong, row, largest);
    return wrong;
}
"""

_STATE = """\
    policy_state state;
    policy_reset(&state);
"""
_RESET = """\
        if (begins[row])
            policy_reset(&state);
"""

_REPLAY_INTEGERS = """\
/* Returns the number of policy_network rows that differ at all. */
static int replay_integers(void)
{
    int row, wrong = 0;
    for (row = 0; row < ROWS; ++row) {
        int8_t output[POLICY_ACTION_SIZE];
        int differs = 0;
        policy_network(inputs + row * POLICY_OBSERVATION_SIZE, output);
        for (int i = 0; i < POLICY_ACTION_SIZE; ++i)
            if (output[i] != outputs[row * POLICY_ACTION_SIZE + i])
                differs = 1;
        wrong += differs;
    }
    printf("%d of %d integer rows differ\\n", wrong, row);
    return wrong;
}
"""


def write_examples_of(
    network: ActorNetwork,
    folder: Path,
    steps: Steps,
    actions: np.ndarray,
    scores: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
) -> None:
    """Writes examples of `policy_act` and, for a quantized network, of `policy_network`.

    For a recurrent network, these are all steps, otherwise up to `COUNT` of them.

    Args:
        network: The converted network.
        folder: The directory that contains `policy.h`.
        steps: N > 0 steps.
        actions: `[N, C + k]`, the policy's actions in these steps, in the environment's units.
        scores: `[N, A]`, the scores of these actions.
        low: `[C + k]`, float64, lower bounds of the actions.
        high: `[C + k]`, float64, upper bounds.
    """
    head = network.architecture.head
    step = step_of(actions.dtype, low, high)
    tolerance, masks = np.maximum(C_TOLERANCE * (high - low), step), None
    tolerance[head.continuous :] = 0.5
    rows = head.visible(steps.rows)
    if head.masked:
        masks = steps.rows[:, -head.masked :].astype(np.uint8)
    if isinstance(network.architecture.encoder, MemoryCore):
        write_examples(folder, rows, actions, tolerance, masks=masks, episodes=steps)
        return
    few, exact = np.flatnonzero(_is_clear(head, scores)), None
    if network.architecture.quantized:
        inputs = integers(_scaled(network, rows, np.float64), *network.ranges[0]).astype(np.int8)
        inputs = spread(inputs, COUNT)
        exact = inputs, run(plan(network), inputs)
        few = np.flatnonzero(_certain(network, rows))
    few = spread(few, COUNT) if len(few) else few
    masks = None if masks is None else masks[few]
    write_examples(folder, rows[few], actions[few], tolerance, exact, masks=masks)


def _is_clear(head: ActionHead, scores: np.ndarray) -> np.ndarray:
    """Returns a mask `[N]` of the scores `[N, A]` without near ties, where C may choose another."""
    clear = np.ones(len(scores), bool)
    for columns in head.segments():
        best = np.sort(scores[:, columns], axis=1)[:, -2:]
        clear &= best[:, -1] - best[:, 0] > TIE if best.shape[1] > 1 else True
    return clear


def write_examples(
    folder: Path,
    observations: np.ndarray,
    actions: np.ndarray,
    tolerance: float | np.ndarray,
    exact: tuple[np.ndarray, np.ndarray] | None = None,
    *,
    masks: np.ndarray | None = None,
    episodes: Steps | None = None,
) -> None:
    """Writes `examples.c`, a program that exits with 1 if an action differs from its example.

    Args:
        folder: The directory that contains `policy.h`.
        observations: `[N, O]`, N > 0, as the environment returns them.
        actions: `[N, C]`, the expected actions of `policy_act`, in the environment's units.
        tolerance: The largest allowed difference, one for all dimensions or `[C]`.
        exact: Inputs of `policy_network`, int8 `[M, O]`, and the outputs it must return exactly,
            int8 `[M, C]`, M > 0. If given, N may be 0.
        masks: `[N, M]`, uint8, the action masks, if the policy takes masks.
        episodes: For a recurrent policy, the N steps with their rewards and starts of episodes.

    Raises:
        ValueError: If a number is not finite.
    """
    count = len(observations)
    parts, calls = list[str](), list[str]()
    if count:
        before = act = ""
        given = ["observations + row * POLICY_OBSERVATION_SIZE"]
        if episodes is not None:
            before, act = _STATE, _RESET
            given = ["&state", *given, "rewards[row]"]
            parts += [
                source.array("float", "rewards", episodes.rewards),
                source.array("unsigned char", "begins", episodes.begins.astype(np.uint8)),
            ]
        if masks is not None:
            given.append("masks + row * POLICY_MASK_SIZE")
            parts.append(source.array("unsigned char", "masks", masks))
        act += f"        policy_act({', '.join([*given, 'action'])});"
        replays = _REPLAY_ACTIONS.replace("BEFORE", before).replace("ACT\n", f"{act}\n")
        parts += [
            source.array("float", "observations", observations),
            source.array("float", "actions", actions),
            source.array("float", "tolerance", np.broadcast_to(tolerance, actions.shape[1:])),
            replays.replace("ROWS", str(count)),
        ]
        calls.append("    wrong += replay_actions();")
    if exact is not None:
        parts += [
            source.array("int8_t", "inputs", exact[0]),
            source.array("int8_t", "outputs", exact[1]),
            _REPLAY_INTEGERS.replace("ROWS", str(len(exact[0]))),
        ]
        calls.append("    wrong += replay_integers();")
    text = _PROGRAM.replace("PARTS", "\n".join(parts)).replace("CALLS", "\n".join(calls))
    text = text.replace("!= OBSERVATIONS", f"!= {observations.shape[1]}")
    text = text.replace("!= ACTIONS", f"!= {actions.shape[1]}")
    (folder / "examples.c").write_text(text, encoding="utf-8")


def _scaled(network: ActorNetwork, rows: np.ndarray, dtype: type[np.floating]) -> np.ndarray:
    if not (moments := network.moments):
        return rows
    return normalized(rows, *(part.astype(dtype) for part in moments))


def _certain(network: ActorNetwork, rows: np.ndarray) -> np.ndarray:
    """Returns a mask `[N]` of the rows `[N, O]` that quantize alike in float32 and float64."""
    exact, written = (_scaled(network, rows, each) for each in (np.float64, np.float32))
    bounds = network.ranges[0]
    steps = exact.astype(np.float64) / grid(*bounds)[0]
    apart = np.abs(steps - np.floor(steps) - 0.5)
    same = integers(exact, *bounds) == integers(written, *bounds)
    found: np.ndarray = ((apart > MARGIN) & same).all(axis=1)
    return found
