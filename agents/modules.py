"""Named networks, each with its optimizer and its target network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from eagerly.agents import losses
from eagerly.networks.models import Model, build_optimizer, copy_variables, optimizer_variables

if TYPE_CHECKING:
    import keras


class Module:
    """A network of an algorithm, with an optional target network and optimizer.

    Args:
        name: Its name in checkpoints, weights and messages.
        network: The network; `Model` documents its interface.
        target: A target network with the same shapes, initialized as a copy; None for no target.
        optimizer: The optimizer that `minimize` uses, or None if the network is not trained. Its
            slot variables are created in this constructor, because no variable may be created while
            an update is traced.
        learned: The variables that `minimize` updates; all trainable ones if None.
        copy_every: Number of updates after which the network is copied to the target, between two
            calls. If 0, the algorithm updates the target with `Modules.update_targets`.

    Attributes:
        name, network, target, optimizer, copy_every: As given.
        learned: The variables that `minimize` updates.
        exchange: Replaces gradients by those of all replicas; None with one replica.

    Raises:
        ValueError: If the target's variables have other shapes than the network's, or `copy_every`
            is negative or set without a target.
    """

    def __init__(
        self,
        name: str,
        network: Any,
        *,
        target: Any = None,
        optimizer: keras.optimizers.Optimizer | None = None,
        learned: Sequence[Any] | None = None,
        copy_every: int = 0,
    ) -> None:
        if copy_every < 0 or (copy_every and target is None):
            raise ValueError(
                f"{name}: copy_every must be at least 0, and 0 without a target; got {copy_every}"
            )
        self.name, self.network, self.target = name, network, target
        self.optimizer, self.copy_every = optimizer, copy_every
        self.exchange: Callable[[list[Any]], list[tf.Tensor]] | None = None
        self.learned = list(network.trainable_variables if learned is None else learned)
        if target is not None:
            _check_shapes(network, target)
            copy_variables(network, target)
        if optimizer is not None:
            build_optimizer(optimizer, self.learned)
            rate = optimizer.learning_rate
            # Learning rates that are not variables, such as schedules, are not in checkpoints.
            self._learning_rate = rate.numpy() if hasattr(rate, "assign") else None

    def __call__(self, *inputs: Any, training: bool = False) -> tf.Tensor:
        """Calls the network. With `training`, running statistics are updated from the inputs."""
        return self.network(*inputs, training=training)

    @property
    def losses(self) -> Sequence[tf.Tensor]:
        """Penalties declared by the network, to be added to its loss."""
        return self.network.losses

    def first(self, *inputs: Any) -> tf.Tensor:
        """Returns the first critic's values `[B]`, if the network is a `CriticModel`."""
        return self.network.first(*inputs)

    def minimize(self, loss: tf.Tensor, tape: tf.GradientTape) -> None:
        """Applies one gradient step on a loss to the variables in `learned`.

        Args:
            loss: Scalar.
            tape: The tape that recorded the computation of the loss.

        Raises:
            ValueError: If the module has no optimizer, or the loss does not depend on one of the
                variables.
        """
        if self.optimizer is None:
            raise ValueError(f"{self.name} has no optimizer: pass one to its Module")
        variables = [variable.value for variable in self.learned]
        gradients = tape.gradient(loss, variables)
        for variable, gradient in zip(self.learned, gradients, strict=True):
            if gradient is None:
                raise ValueError(
                    f"the loss of {self.name} does not depend on {variable.path}: compute it under "
                    "the tape, from this network, or exclude the variable from `learned`"
                )
        if self.exchange is not None:
            gradients = self.exchange(gradients)
        self.optimizer.apply(gradients, variables)
        for variable in self.learned:
            constraint = getattr(variable, "constraint", None)
            if constraint is not None:
                variable.assign(constraint(variable.value))

    def networks(self) -> dict[str, Model]:
        """Returns the network as `name`, and its target, if any, as `name_target`."""
        found = {self.name: self.network}
        return found if self.target is None else found | {f"{self.name}_target": self.target}

    def slots(self) -> dict[str, list[Any]]:
        """Returns the optimizer's variables, if any, as `name_optimizer`."""
        if self.optimizer is None:
            return {}
        return {f"{self.name}_optimizer": optimizer_variables(self.optimizer, self.learned)}

    def copy_to_target(self) -> None:
        """Copies the network's variables to the target."""
        copy_variables(self.network, self.target)

    def keep_learning_rate(self) -> None:
        """Resets the learning rate to its configured value after a checkpoint was read."""
        if self.optimizer is not None and self._learning_rate is not None:
            self.optimizer.learning_rate = self._learning_rate


class Modules(Mapping[str, Module]):
    """The modules of an algorithm, saved, restored and checked together.

    Variables are grouped by name: the module `actor` has the groups `actor`, `actor_target` and
    `actor_optimizer`. A variable shared by several networks appears only in the group of the first.

    Args:
        modules: The modules.

    Raises:
        ValueError: If two modules or groups have the same name, or a target shares a variable with
            a trained network.
    """

    def __init__(self, *modules: Module) -> None:
        self._modules = {module.name: module for module in modules}
        groups = [name for m in modules for name in (*m.networks(), *m.slots())] + ["updates"]
        if len(set(groups)) < len(groups):
            raise ValueError(
                f"variable groups must have different names; got {groups}: rename a module"
            )
        moved = [module.network for module in modules if module.optimizer is not None]
        learned = {id(v.value) for network in moved for v in network.trainable_variables}
        for module in modules:
            for variable in () if module.target is None else module.target.trainable_variables:
                if id(variable.value) in learned:
                    raise ValueError(
                        f"variable {variable.path!r} of {module.network.name} was returned by two "
                        "calls of its factory: create a new one in every call, because targets "
                        "need their own. To share variables between actor and critics, set "
                        "`models`, one factory for both"
                    )

    def __getitem__(self, name: str) -> Module:
        if name not in self._modules:
            raise KeyError(f"no module is named {name!r}; modules are {', '.join(self._modules)}")
        return self._modules[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    def networks(self) -> dict[str, Model]:
        """Returns all networks and targets by group name."""
        return {name: net for module in self.values() for name, net in module.networks().items()}

    def groups(self) -> dict[str, list[Any]]:
        """Returns all variables by group name, including those of optimizers."""
        seen: set[int] = set()
        groups = {}
        for name, network in self.networks().items():
            fresh = {id(v.value): v for v in network.variables if id(v.value) not in seen}
            groups[name] = list(fresh.values())
            seen |= fresh.keys()
        for module in self.values():
            groups |= module.slots()
        return groups

    def update_targets(self, tau: float, *names: str) -> None:
        """Moves targets toward their networks: θ' ← τ θ + (1 - τ) θ'.

        Non-trainable variables, such as running statistics, are copied. Variables that a target
        shares with its network are skipped, and so are modules with `copy_every`.

        Args:
            tau: τ, the weight of the network in the update, in (0, 1].
            *names: The modules whose targets are updated; all if omitted.
        """
        followed: set[int] = set()
        with tf.name_scope("target_update"):
            for module in [self[name] for name in names or self]:
                if module.target is None or module.copy_every:
                    continue
                pairs = [
                    (own, other)
                    for own, other in zip(
                        module.target.variables, module.network.variables, strict=True
                    )
                    if own.value is not other.value and id(own.value) not in followed
                ]
                followed |= {id(own.value) for own, _ in pairs}
                moved = [(own.value, other.value) for own, other in pairs if other.trainable]
                losses.polyak_update([own for own, _ in moved], [other for _, other in moved], tau)
                for own, other in pairs:
                    if not other.trainable:
                        own.assign(other.value)


def _check_shapes(network: Any, target: Any) -> None:
    shapes, copies = ([(v.path, tuple(v.shape)) for v in m.variables] for m in (network, target))
    if [shape for _, shape in shapes] != [shape for _, shape in copies]:
        raise ValueError(
            f"the factory of {network.name} must create variables of the same shapes in every "
            f"call; got {shapes}, then {copies}"
        )
