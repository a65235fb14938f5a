"""The default modules of an algorithm: an actor and critics, each with a target network."""

from __future__ import annotations

from typing import Any

from eagerly.agents.builder import ModelBuilder
from eagerly.agents.modules import Module, Modules
from eagerly.networks.custom import CustomModel


def actor_critic(builder: ModelBuilder, *, targets: bool = True) -> Modules:
    """Builds the modules `actor` and `critic`, each with its own optimizer.

    Args:
        builder: Builds the networks, and the target networks as a second set.
        targets: Whether each module has a target network.

    Raises:
        ValueError: If a custom model is invalid. Also if `shared_gradient` is set but the models
            share no variables, or if it leaves a loss without variables to train.
    """
    config = builder.config
    models = builder.models()
    copies: Any = builder.models("_target") if targets else (None, None)
    for model in models:
        if isinstance(model, CustomModel):
            model.check_mode(config.mode)
    rates = config.actor_learning_rate, config.critic_learning_rate
    learned = _learned(*models, config.shared_gradient)
    return Modules(
        *(
            Module(
                name,
                model,
                target=target,
                learned=variables,
                optimizer=builder.rates.optimizer(rate, f"{name}_optimizer"),
            )
            for name, model, target, variables, rate in zip(
                ("actor", "critic"), models, copies, learned, rates, strict=True
            )
        )
    )


def _learned(actor: Any, critic: Any, shared_gradient: str) -> tuple[list[Any], list[Any]]:
    """Returns the variables trained by the actor's loss and by the critics' loss."""
    of_actor, of_critic = actor.trainable_variables, critic.trainable_variables
    shared = {id(v.value) for v in of_actor} & {id(v.value) for v in of_critic}
    if shared_gradient != "critic" and not shared:
        raise ValueError(
            f"shared_gradient {shared_gradient} requires variables shared by actor and critics; "
            "they share none"
        )
    if shared_gradient == "critic":
        of_actor = [v for v in of_actor if id(v.value) not in shared]
    if shared_gradient == "actor":
        of_critic = [v for v in of_critic if id(v.value) not in shared]
    for name, left in (("actor", of_actor), ("critics", of_critic)):
        if not left:
            raise ValueError(
                f"the loss of the {name} has no variables to train: all are shared, and "
                f"shared_gradient is {shared_gradient}"
            )
    return list(of_actor), list(of_critic)
