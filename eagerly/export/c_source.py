"""Building blocks of an exported C99 policy: functions, and constants without rounding errors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

# Maximum characters per line of an array, without indentation.
WIDTH = 96

# Expressions that are assigned to `x[i]`.
ACTIVATIONS = {
    "relu": "x[i] < 0.0f ? 0.0f : x[i]",  # propagates NaN
    "tanh": "tanhf(x[i])",
    "elu": "x[i] > 0.0f ? x[i] : expm1f(x[i])",
    "silu": "x[i] / (1.0f + expf(-x[i]))",
    "leaky_relu": "x[i] > 0.0f ? x[i] : 0.01f * x[i]",
}

CLIPPED = """\
static float clipped(float x, float low, float high)
{
    return x < low ? low : x > high ? high : x;
}
"""

# Four partial sums have half the rounding error of a single sum and are two to three times as fast.
FLOAT_DENSE = """\
static float dot(const float *x, const float *y, int count)
{
    float a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f;
    int i = 0;
    for (; i + 4 <= count; i += 4) {
        a += x[i] * y[i];
        b += x[i + 1] * y[i + 1];
        c += x[i + 2] * y[i + 2];
        d += x[i + 3] * y[i + 3];
    }
    for (; i < count; ++i)
        a += x[i] * y[i];
    return (a + b) + (c + d);
}

/* Sets y to kernel x + bias. Each row of the kernel belongs to one unit. */
static void dense(const float *x, int inputs, const float *kernel, const float *bias, float *y,
                  int units)
{
    for (int unit = 0; unit < units; ++unit) {
        y[unit] = dot(kernel, x, inputs) + bias[unit];
        kernel += inputs;
    }
}
"""

LAYER_NORM = """\
static void layer_norm(float *x, int units, const float *gamma, const float *beta)
{
    float mean = 0.0f, variance = 0.0f;
    for (int i = 0; i < units; ++i)
        mean += x[i];
    mean /= (float)units;
    for (int i = 0; i < units; ++i) {
        x[i] -= mean;
        variance += x[i] * x[i];
    }
    const float deviation = sqrtf(variance / (float)units + EPSILON);
    for (int i = 0; i < units; ++i)
        x[i] = x[i] / deviation * gamma[i] + beta[i];
}
"""

# The comparison propagates NaN.
AVERAGE_L1_NORM = """\
static void average_l1_norm(float *x, int units)
{
    float mean = 0.0f;
    for (int i = 0; i < units; ++i)
        mean += fabsf(x[i]);
    mean /= (float)units;
    mean = mean < EPSILON ? EPSILON : mean;
    for (int i = 0; i < units; ++i)
        x[i] /= mean;
}
"""

# In C99, a right shift of a negative number is implementation-defined.
INTEGER_DENSE = """\
/* Returns sum * multiplier / 2^shift, rounded once, half up. */
static int64_t scaled(int32_t sum, int32_t multiplier, int shift)
{
    const int64_t product = (int64_t)sum * multiplier + ((int64_t)1 << (shift - 1));
    return product >= 0 ? product >> shift : ~(~product >> shift);
}

/* Each row of the kernel belongs to one unit. The bias includes the zero point of x. */
static void dense(const int8_t *x, int inputs, const int8_t *kernel, const int32_t *bias,
                  const int32_t *multiplier, const uint8_t *shift, int zero_point, int least,
                  int8_t *y, int units)
{
    for (int unit = 0; unit < units; ++unit) {
        int32_t sum = bias[unit];
        for (int i = 0; i < inputs; ++i)
            sum += kernel[i] * x[i];
        const int64_t q = scaled(sum, multiplier[unit], shift[unit]) + zero_point;
        y[unit] = (int8_t)(q < least ? least : q > 127 ? 127 : q);
        kernel += inputs;
    }
}
"""

# The first comparisons limit values to the range of an int and map NaN to the minimum.
QUANTIZED = """\
/* Rounds to the nearest integer on the input grid, half to even. */
static int8_t quantized(float x)
{
    float steps = x / POLICY_INPUT_SCALE;
    steps = steps > -512.0f ? steps : -512.0f;
    steps = steps < 512.0f ? steps : 512.0f;
    int q = (int)steps;
    const float rest = steps - (float)q;
    if (rest > 0.5f || (rest == 0.5f && q % 2 != 0))
        ++q;
    if (rest < -0.5f || (rest == -0.5f && q % 2 != 0))
        --q;
    q += POLICY_INPUT_ZERO_POINT;
    return (int8_t)(q < -128 ? -128 : q > 127 ? 127 : q);
}
"""

STATE = """\
/*
 * The state of one episode. Call policy_reset at its start. The other functions update the state.
 * Their previous_reward is the reward of the previous action, and 0 at the start of an episode.
 * previous_action is in [-1, 1]. Change it if another action was executed.
 */
"""

BEST = """\
/* Returns the index of the largest valid logit; all are valid if there is no mask. */
static int best_of(const float *logits, const unsigned char *valid, int count)
{
    int best = -1;
    for (int i = 0; i < count; ++i)
        if ((valid == 0 || valid[i]) && (best < 0 || logits[i] > logits[best]))
            best = i;
    return best < 0 ? 0 : best;
}
"""

CHOSEN = """
   The action ends with the value of each choice, a whole number."""
MASKED = """
   valid has POLICY_MASK_SIZE flags, 1 for each valid value of each choice; null: all are valid."""

HEADER = """\
#ifndef POLICY_H
#define POLICY_H

{include}{sizes}

#ifdef __cplusplus
extern "C" {{
#endif

{reset}{units}
{network};

/* Maps an observation to an action, both in the environment's units.{chosen} */
{act};

#ifdef __cplusplus
}}
#endif

#endif
"""


def plain(line: str) -> str:
    """Returns a line whose unusual characters are replaced, so that a comment can contain it."""
    return re.sub(r"[^\w .,:+/-]|\*/|//", "?", line, flags=re.ASCII)


def state(parts: Mapping[str, Any]) -> str:
    """Returns the definition of `policy_state`, from the size of each part in floats."""
    arrays = "".join(f"    float {name}[{size}];\n" for name, size in parts.items())
    return f"{STATE}typedef struct {{\n{arrays}}} policy_state;"


def comment(text: str) -> str:
    """Returns text as a C comment, with comment delimiters and trigraphs broken up."""
    safe = text.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")
    return "/*\n" + "".join(f" * {line}".rstrip() + "\n" for line in safe.splitlines()) + " */\n"


def real(value: float | np.floating) -> str:
    """Returns a C literal that is read back as exactly this float32.

    Raises:
        ValueError: If the value is not finite in float32.
    """
    with np.errstate(over="ignore"):
        number = np.float32(value)
    if not np.isfinite(number):
        raise ValueError(f"exported numbers must be finite in float32; got {value}")
    return f"{number!s}f"


def array(kind: str, name: str, values: np.ndarray) -> str:
    """Returns the definition of a constant array of "float" or an integer type, in C order.

    An empty array gets an unused zero, because C has no empty arrays.
    """
    write = real if kind == "float" else str
    texts = [write(value) for value in np.asarray(values).ravel()] or ["0"]
    each = WIDTH // (max(map(len, texts)) + 2)
    lines = (", ".join(texts[at : at + each]) for at in range(0, len(texts), each))
    return f"static const {kind} {name}[{len(texts)}] = {{\n    " + ",\n    ".join(lines) + "\n};\n"


def activation(name: str) -> str:
    """Returns a C function that applies an activation in place."""
    return (
        f"static void apply_{name}(float *x, int units)\n{{\n"
        f"    for (int i = 0; i < units; ++i)\n        x[i] = {ACTIVATIONS[name]};\n}}\n"
    )


def function(head: str, lines: Iterable[str]) -> str:
    """Returns a C function with the given signature and body lines."""
    return f"{head}\n{{\n" + "".join(f"    {line}\n" for line in lines) + "}\n"
