"""Collects the code of an exported C network in float32."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from eagerly.export import c_source as source
from eagerly.policies.architecture import DENSE, NORM
from eagerly.policies.operations import AVERAGE_L1_EPSILON, LAYER_NORM_EPSILON


class FloatCode:
    """Collects the C code of a float32 network, one layer after the other.

    Attributes:
        weights: Weights by `layer/weight`.
        constants: Weight arrays.
        functions: Code of the functions that `policy_network` calls, by name.
        calls: Lines in the body of `policy_network`.
    """

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        self.weights, self.constants = dict(weights), list[str]()
        self.functions, self.calls = {"dense": source.FLOAT_DENSE}, list[str]()

    def dense(self, layer: str, given: str, target: str, *, declares: bool = True) -> int:
        """Adds a dense layer and returns its number of units.

        The target array is declared unless `declares` is False.
        """
        kernel, bias = (self.weights[f"{layer}/{part}"] for part in DENSE)
        inputs, units = kernel.shape
        self.constant(f"{layer}_kernel", kernel.T)
        self.constant(f"{layer}_bias", bias)
        if declares:
            self.calls.append(f"float {target}[{units}];")
        arrays = f"{layer}_kernel, {layer}_bias"
        self.calls.append(f"dense({given}, {inputs}, {arrays}, {target}, {units});")
        return int(units)

    def activate(self, name: str, target: str, units: int) -> None:
        """Adds an in-place activation."""
        self.functions[name] = source.activation(name)
        self.calls.append(f"apply_{name}({target}, {units});")

    def layer_norm(self, layer: str, target: str, units: int) -> None:
        """Adds an in-place layer normalization."""
        epsilon = source.real(LAYER_NORM_EPSILON)
        self.functions["layer_norm"] = source.LAYER_NORM.replace("EPSILON", epsilon)
        for part in NORM:
            self.constant(f"{layer}_{part}", self.weights[f"{layer}/{part}"])
        self.calls.append(f"layer_norm({target}, {units}, {layer}_gamma, {layer}_beta);")

    def average_l1_norm(self, target: str, units: int) -> None:
        """Adds an in-place division by the mean absolute value."""
        epsilon = source.real(AVERAGE_L1_EPSILON)
        self.functions["average_l1_norm"] = source.AVERAGE_L1_NORM.replace("EPSILON", epsilon)
        self.calls.append(f"average_l1_norm({target}, {units});")

    def constant(self, name: str, values: np.ndarray) -> None:
        """Adds a constant array."""
        self.constants.append(source.array("float", name, values))
