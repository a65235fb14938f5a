"""PyTorch modules as actors and critics: values, gradients and training."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from eagerly.agents.ddpg import DDPG
from eagerly.agents.ddpg_config import DDPGConfig
from eagerly.agents.td3 import TD3
from eagerly.agents.td3_config import TD3Config
from tests.agents.test_own_models import agent_of, functional_critic
from tests.helpers import (
    equal_weights,
    filled_buffer,
    reseed,
    restore_networks,
    spaces,
    weights_of,
)

torch = pytest.importorskip("torch", reason="PyTorch, an extra, is not installed")

from torch import nn  # noqa: E402

from eagerly.networks.torch_module import TorchModule  # noqa: E402

pytestmark = pytest.mark.usefixtures("unoptimized")


class Joined(nn.Module):
    """A network that concatenates its inputs, and has running statistics (`BatchNorm`)."""

    def __init__(self, inputs: int, outputs: int, last: nn.Module) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(inputs, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, outputs), last
        )

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.net(torch.cat(inputs, -1))


def actor(observations: Any, actions: Any) -> Any:
    return TorchModule(Joined(observations.shape[0], actions.shape[0], nn.Tanh()))


def critic(observations: Any, actions: Any) -> Any:
    return TorchModule(Joined(observations.shape[0] + actions.shape[0], 1, nn.Identity()))


@pytest.mark.parametrize(("training", "statistics"), [(False, True), (True, True), (True, False)])
def test_values_and_gradients_equal_those_of_pytorch(training: bool, statistics: bool) -> None:
    module = Joined(6, 3, nn.Tanh())
    if not statistics:
        module.net[2] = nn.Identity()
    wrapped = TorchModule(module)
    random = np.random.default_rng(0)
    one, other, upstream = (random.normal(size=(5, size)).astype(np.float32) for size in (4, 2, 3))
    module.train(training)
    inputs = [torch.from_numpy(part).requires_grad_() for part in (one, other)]
    expected = module(*inputs)
    sources = [*inputs, *module.parameters()]
    gradients = torch.autograd.grad(expected, sources, torch.from_numpy(upstream))

    @tf.function
    def called(*inputs: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = wrapped(*inputs, training=training)
        learned = sorted(wrapped.trainable_variables, key=lambda v: names.index(v.name))
        return output, tape.gradient(output, [*inputs, *learned], tf.constant(upstream))

    names = [f"{name}:0" for name, _ in module.named_parameters()]
    output, found = called(tf.constant(one), tf.constant(other))
    assert output.shape == (5, 3)
    np.testing.assert_allclose(output, expected.detach(), 1e-6)
    for gradient, value in zip(found, gradients, strict=True):
        np.testing.assert_allclose(gradient, value, 1e-5, 1e-7)
    kept = {v.name: v.numpy() for v in wrapped.variables if not v.trainable}
    for name, buffer in module.named_buffers():
        np.testing.assert_allclose(kept[f"{name}:0"], buffer, 1e-6)


def test_modules_train_and_can_be_restored_in_eager_and_graph_mode(tmp_path: Path) -> None:
    after = {}
    for mode in ("eager", "graph"):
        agent, buffer = agent_of(actor, critic, mode=mode), filled_buffer()
        before = weights_of(agent)
        agent.train(buffer, 2)
        agent.checkpoint.write(str(tmp_path / mode))
        sampling = buffer.state()
        agent.train(buffer, 2)
        after[mode] = weights_of(agent)
        assert not np.array_equal(before["actor: net.0.weight"], after[mode]["actor: net.0.weight"])
        followed = "critic_target: 0/net.2.running_mean", "critic: 0/net.2.running_mean"
        np.testing.assert_array_equal(*(after[mode][name] for name in followed))
    for name, values in after["eager"].items():
        np.testing.assert_allclose(after["graph"][name], values, 1e-3, 1e-5, err_msg=name)
    again, buffer = agent_of(actor, critic, seed=4, mode="graph"), filled_buffer()
    reseed(again, 0)
    restore_networks(again, str(tmp_path / "graph"))
    buffer.restore(sampling)
    again.train(buffer, 2)
    assert equal_weights(weights_of(again), after["graph"])
    assert again.act(np.ones((3, 4))).shape == (3, 2)


def test_the_seed_of_a_run_determines_its_modules() -> None:
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    one, same, other = (agent_of(actor, critic, seed, mode="eager") for seed in (0, 0, 1))
    assert torch.rand(1) == expected
    assert equal_weights(weights_of(one), weights_of(same))
    assert not equal_weights(weights_of(one), weights_of(other))


class Sharing(nn.Module):
    """A network whose encoder is shared with another network."""

    def __init__(self, encoder: nn.Module, inputs: int, outputs: int, last: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head, self.last = encoder, nn.Linear(inputs, outputs), last

    def forward(self, observation: Any, *more: Any) -> Any:
        joined = torch.cat([torch.tanh(self.encoder(observation)), *more], dim=-1)
        return self.last(self.head(joined))


def test_parameters_shared_by_two_modules_are_one_variable() -> None:
    def models(observations: Any, actions: Any) -> tuple[Any, Any]:
        encoder = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
        return (
            TorchModule(Sharing(encoder, 3, 2, nn.Tanh())),
            TorchModule(Sharing(encoder, 3 + 2, 1, nn.Identity())),
        )

    config = DDPGConfig(mode="eager", batch_size=8, shared_gradient="both")
    agent = DDPG(*spaces(), config, seed=0, models=models)
    of_actor, of_critic = (
        {variable.path: variable.value for variable in model.variables}
        for model in (agent.actor.network, agent.critic.network)
    )
    both = [name for name in of_actor if name.startswith("encoder.")]
    assert len(both) == 4 + 3  # 4 parameters, and 3 buffers of BatchNorm
    assert all(of_actor[name] is of_critic[name] for name in both)
    assert of_actor["head.weight"] is not of_critic["head.weight"]
    target = agent.actor.target.variables
    assert not {id(v.value) for v in target} & {id(v) for v in of_actor.values()}
    before = of_actor["encoder.0.weight"].numpy()
    agent.train(filled_buffer(), 1)
    assert not np.array_equal(of_critic["encoder.0.weight"], before)


def test_a_factory_that_imports_pytorch_itself_is_seeded(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(
        "def actor(observations, actions):\n"
        "    import torch\n"
        "    from eagerly.networks.torch_module import TorchModule\n"
        "    return TorchModule(torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Tanh()))\n"
    )
    program = (
        "import late, numpy as np\n"
        "from gymnasium.spaces import Box\n"
        "from eagerly import TD3\n"
        "from eagerly.agents.td3 import TD3Config\n"
        "agent = TD3(Box(-1, 1, (4,)), Box(-1, 1, (2,)), TD3Config(mode='eager'), seed=0,\n"
        "            actor=late.actor)\n"
        "print(agent.get_weights()['actor/0.weight'].ravel().tolist())\n"
    )
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    made = TD3(
        *spaces(4, 2),
        TD3Config(mode="eager"),
        seed=0,
        actor=lambda *_: TorchModule(nn.Sequential(nn.Linear(4, 2), nn.Tanh())),
    )
    assert said.split("\n")[-2] == str(made.get_weights()["actor/0.weight"].ravel().tolist())


class Dropping(nn.Module):
    """A network with dropout before its last linear layer."""

    def __init__(self, inputs: int, outputs: int, last: nn.Module) -> None:
        super().__init__()
        self.first, self.dropout = nn.Linear(inputs, 64), nn.Dropout(0.5)
        self.second, self.last = nn.Linear(64, outputs), last

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.dropout(torch.relu(self.first(torch.cat(inputs, -1))))
        return self.last(self.second(hidden))


@pytest.mark.parametrize("training", [True, False])
def test_the_backward_pass_uses_the_random_numbers_of_the_forward_pass(training: bool) -> None:
    module = Dropping(4, 1, nn.Identity())
    if not training:  # dropout is also active in evaluation mode
        module.dropout.forward = lambda hidden: nn.functional.dropout(hidden, 0.5, True)
    wrapped = TorchModule(module)
    weight, bias = (
        next(v for v in wrapped.variables if v.name == f"second.{name}:0")
        for name in ("weight", "bias")
    )

    @tf.function
    def called(inputs: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            output = wrapped(inputs, training=training)
        return output, tape.gradient(output, weight)

    outputs = []
    for _ in range(3):
        output, gradient = called(tf.ones((5, 4)))
        expected = tf.reduce_sum(output - bias)
        np.testing.assert_allclose(tf.reduce_sum(gradient * weight), expected, 1e-4, 1e-5)
        outputs.append(output.numpy())
    assert not np.array_equal(outputs[0], outputs[1])


def test_a_restored_module_with_dropout_continues_bit_for_bit(tmp_path: Path) -> None:
    def dropping(observations: Any, actions: Any) -> Any:
        size = observations.shape[0] + actions.shape[0]
        return TorchModule(Dropping(size, 1, nn.Identity()))

    agent, buffer = agent_of(actor, dropping, mode="graph"), filled_buffer()
    agent.train(buffer, 2)
    agent.checkpoint.write(str(tmp_path / "agent"))
    sampling = buffer.state()
    agent.train(buffer, 2)
    again, buffer = agent_of(actor, dropping, mode="graph"), filled_buffer()
    restore_networks(again, str(tmp_path / "agent"))
    buffer.restore(sampling)
    again.train(buffer, 2)
    assert equal_weights(weights_of(again), weights_of(agent))
    one, other = (v for v in agent.critic.network.variables if v.path.endswith("seed"))
    assert one.numpy() != other.numpy()


def test_reassigned_buffers_are_kept() -> None:
    class Following(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(4))
            self.last = nn.Linear(4, 2)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            if self.training:
                self.mean = 0.9 * self.mean + 0.1 * inputs.detach().mean(0)
            return self.last(inputs - self.mean)

    wrapped = TorchModule(Following())
    (mean,) = (v for v in wrapped.variables if v.name == "mean:0")
    for training, expected in ((False, 0.0), (True, 0.1), (True, 0.19)):
        wrapped(tf.ones((3, 4)), training=training)
        np.testing.assert_allclose(mean, [expected] * 4, 1e-6)


def test_numbers_in_pytorch_names_are_part_of_variable_names() -> None:
    class Numbered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w_1, self.w_2 = (nn.Parameter(torch.ones(4, 2)) for _ in range(2))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return torch.tanh(inputs @ self.w_1)

    with pytest.raises(ValueError, match=r"a variable without gradient, 'w_2'"):
        agent_of(lambda o, a: TorchModule(Numbered()), "", mode="graph")


def test_unsupported_modules_are_rejected() -> None:
    with pytest.raises(ValueError, match="XLA cannot compile the model actor: set mode to"):
        agent_of(actor, functional_critic, mode="xla")

    class Idle(Joined):
        def __init__(self) -> None:
            super().__init__(4, 2, nn.Tanh())
            self.unused = nn.Linear(3, 3)

    with pytest.raises(ValueError, match=r"a variable without gradient, 'unused\.weight'"):
        agent_of(lambda o, a: TorchModule(Idle()), "", mode="graph")
    with pytest.raises(ValueError, match=r"cannot be called .* must return one tensor"):
        agent_of(lambda o, a: TorchModule(nn.LSTM(4, 2)), "", mode="graph")
