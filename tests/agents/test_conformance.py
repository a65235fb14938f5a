"""Requirements that every registered agent must meet. A new agent is tested once registered."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from eagerly.agents import agent_class, agent_names, config_class
from eagerly.agents.agent import Agent
from eagerly.agents.inputs import Batch
from eagerly.agents.schedule import Phase
from eagerly.agents.update_random import UpdateRandom
from eagerly.buffers import ReplayBuffer, Transition
from eagerly.settings import Setting, Settings, setting
from eagerly.storage.run_settings import build
from tests.helpers import (
    buffer_for,
    equal_weights,
    filled_buffer,
    random_of,
    random_transitions,
    reseed,
    restore_networks,
    shared_agent,
    small_agent,
    small_config,
    stepped,
    trained_cheetah,
    weights_of,
)

MODES = ("eager", "graph", "xla")


def _cases(names: Iterable[str]) -> list[Any]:
    """Returns the names as parameters; some agents are left to the long tests."""
    # Only the actor's step distinguishes TD3+BC from TD3. test_td3_bc.py tests it.
    return [pytest.param(n, marks=pytest.mark.long if n == "td3_bc" else ()) for n in names]


# Compiling an update takes up to ten seconds, and all agents and modes use the same code for it.
LONG = {(mode, name) for mode in ("graph", "xla") for name in agent_names()} - {("xla", "td3")}
LONG |= {("eager", "td3_bc")}
MODES_AND_AGENTS = [
    pytest.param(mode, name, marks=pytest.mark.long if (mode, name) in LONG else ())
    for mode in MODES
    for name in agent_names()
]
EAGER = {("eager", name) for name in agent_names()} - LONG
Make = Callable[..., Agent]
SEEDS_AND_AGENTS = [
    # The case of TD7 is not long, because no other short test compiles TD7.
    pytest.param(name, seed, marks=() if (name, seed) == ("td7", 0) else pytest.mark.long)
    for name in agent_names()
    for seed in range(2)
]

# Agents with an actor and critics, whose target networks are updated by averaging with tau.
PAIRS = tuple(name for name in agent_names() if "tau" in config_class(name).SETTINGS)


@pytest.fixture(params=_cases(agent_names()))
def name(request: pytest.FixtureRequest) -> str:
    """The name of each registered agent in turn."""
    return str(request.param)


@pytest.fixture(params=_cases(PAIRS))
def pair_name(request: pytest.FixtureRequest) -> str:
    """The name of each agent in `PAIRS` in turn."""
    return str(request.param)


@pytest.fixture
def make(name: str) -> Make:
    """Creates small agents called `name`."""
    return functools.partial(small_agent, name)


@pytest.fixture
def make_pair(pair_name: str) -> Make:
    """Creates small agents called `pair_name`."""
    return functools.partial(small_agent, pair_name)


@pytest.fixture
def agent(name: str) -> Agent:
    """A small agent like those of `make`, but built once and reset, which is faster."""
    made: Agent = shared_agent(name)
    return made


@pytest.fixture
def pair(pair_name: str) -> Agent:
    """A small agent like those of `make_pair`, but built once and reset, which is faster."""
    made: Agent = shared_agent(pair_name)
    return made


# --- seeds, calls, modes ----------------------------------------------------------------------


def test_seeds_and_numbers_of_updates_are_integers(name: str) -> None:
    agent = small_agent(name, seed=np.int64(0))
    assert type(agent.seed) is int
    for wrong in (None, 2.0, -1):
        with pytest.raises(ValueError, match="seed must be "):
            small_agent(name, seed=wrong)
        with pytest.raises(ValueError, match="seed must be "):
            agent.replay_buffer(9, seed=wrong)
    for wrong in (0, 2.5):
        with pytest.raises(ValueError, match="updates must be "):
            agent.train(filled_buffer(), wrong)


def test_equal_seeds_give_equal_results_and_different_seeds_do_not(name: str) -> None:
    first = _fingerprint(name, ())
    assert _fingerprint.__wrapped__(name, ()) == first
    assert _fingerprint(name, (("seed", 1),)) != first


def check_close(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Asserts that the variables after one update are equal up to rounding.

    Up to five weights may differ more. Adam's first step is nearly the sign of the gradient, so a
    gradient within rounding of 0 gives an arbitrary step (docs/eager-and-compiled.md).
    """
    differences = []
    for path, values in expected.items():
        # The exception does not apply to Adam's moments.
        if "optimizer" in path:
            np.testing.assert_allclose(found[path], values, 1e-5, 1e-7, err_msg=path)
        differences.append(np.abs(found[path] - values).ravel() - 1e-5 * np.abs(values).ravel())
    difference = np.concatenate(differences)
    assert (difference > 1e-7).sum() <= 5, f"of {difference.size}"
    assert difference.max() < 1e-5


@pytest.mark.parametrize(("mode", "name"), MODES_AND_AGENTS)
def test_modes_agree_and_results_do_not_depend_on_calls_or_restoring(
    mode: str, name: str, tmp_path: Path
) -> None:
    # Layers whose width is a multiple of 128 use the cache-friendly gradient of `product`.
    sizes = (128, 16) if name == "td7" else (256, 256)
    settings = {"exploration": "ornstein_uhlenbeck", "hidden_sizes": sizes, "batch_size": 64}
    # XLA compiles three programs for TD3 even without these settings.
    if (mode, name) != ("xla", "td3"):
        settings |= {"schedule": "cosine", "schedule_steps": 5}
        settings |= {"weight_decay": 0.1, "clip_gradients": 0.5}
    agent, buffer = small_agent(name, mode=mode, **settings), filled_buffer()
    agent.train(buffer, 1)
    if mode != "eager":
        eager = small_agent(name, **settings)
        eager.train(filled_buffer(), 1)
        check_close(weights_of(agent), weights_of(eager))
    agent.train(buffer, 1)
    behavior = agent.behavior()
    stepped(behavior, np.ones((2, 4)))
    agent.checkpoint.write(str(tmp_path / "networks"))
    collecting, sampling = behavior.state(), buffer.state()
    saved = weights_of(agent)
    for _ in range(4):
        agent.train(buffer, 1)
    acted = behavior.act(np.ones((2, 4)))

    restored, again = small_agent(name, seed=9, mode=mode, **settings), filled_buffer()
    reseed(restored, 0)
    restore_networks(restored, str(tmp_path / "networks"))
    assert equal_weights(saved, weights_of(restored))
    assert restored.updates == 2
    other = restored.behavior()
    other.restore(collecting)
    again.restore(sampling)
    # XLA compiles a separate program for each number of updates per call. TD7 copies its targets
    # between calls, so the number must divide the two updates so far.
    for updates in (2, 2) if mode == "xla" else (1, 3):
        restored.train(again, updates)
    assert equal_weights(weights_of(agent), weights_of(restored))
    np.testing.assert_array_equal(other.act(np.ones((2, 4))), acted)


# test_td3.py and test_ddpg.py also compare graph and XLA updates with NumPy references.
@pytest.mark.long
@pytest.mark.parametrize("name", agent_names())
def test_modes_are_equivalent_in_float64(name: str) -> None:
    after = {}
    for mode in MODES:
        agent = small_agent(name, mode=mode, precision="float64", batch_size=32)
        agent.train(filled_buffer(500), 20)
        after[mode] = weights_of(agent)
    for mode in ("graph", "xla"):
        for name, values in after["eager"].items():
            np.testing.assert_allclose(after[mode][name], values, 1e-7, 0, err_msg=name)


def test_the_mode_selects_compilation() -> None:
    calls = [small_agent("td3", mode=mode).learner._compiled(list) for mode in MODES]
    assert [getattr(call, "_jit_compile", None) for call in calls] == [None, False, True]


@pytest.mark.parametrize(("name", "seed"), SEEDS_AND_AGENTS)
def test_the_modes_agree_in_float32_after_the_first_update(name: str, seed: int) -> None:
    sizes = {"hidden_sizes": (64, 64), "embedding_size": 32, "encoder_hidden_sizes": (32,)}
    settings = sizes if name == "td7" else {}
    after = {mode: weights_of(trained_cheetah(name, mode, seed, 1, **settings)) for mode in MODES}
    for mode in ("graph", "xla"):
        check_close(after[mode], after["eager"])


@pytest.mark.long
@pytest.mark.parametrize("name", agent_names())
def test_the_modes_stay_close_in_float32_over_100_updates(name: str) -> None:
    # `copy_every` must be a multiple of the 100 updates in a call.
    settings = {"copy_every": 100} if name == "td7" else {}
    flat = {}
    for mode in MODES:
        networks = trained_cheetah(name, mode, 0, 100, **settings).modules.networks()
        flat[mode] = {
            part: np.concatenate([v.numpy().ravel() for v in network.variables])
            for part, network in networks.items()
        }
    for mode in ("graph", "xla"):
        for part, values in flat["eager"].items():
            difference = np.linalg.norm(flat[mode][part] - values) / np.linalg.norm(values)
            assert difference < 1e-2, f"{part} of {mode}: {difference}"


def test_the_train_body_runs_as_plain_python_in_eager_mode(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def spy(batch: Batch, random: UpdateRandom, phase: Phase) -> Any:
        seen.append(batch.reward.numpy())  # `numpy()` fails for symbolic tensors
        return agent.update(batch, random, phase)

    monkeypatch.setattr(agent.learner, "_update", spy)
    agent.train(filled_buffer(), 2)
    assert [rewards.shape for rewards in seen] == [(8,), (8,)]


# --- updated variables and metrics ------------------------------------------------------------


def test_targets_start_as_copies_and_follow_by_tau(make_pair: Make) -> None:
    agent = make_pair(tau=0.25)
    pairs = [(module.network, module.target) for module in agent.modules.values()]
    assert len(pairs) == 2
    for model, target in pairs:
        for weight, copy in zip(model.get_weights(), target.get_weights(), strict=True):
            np.testing.assert_array_equal(weight, copy)
    before = [target.get_weights() for _, target in pairs]
    agent.train(filled_buffer(), math.lcm(*agent.intervals))
    for (model, target), old in zip(pairs, before, strict=True):
        for weight, new, was in zip(model.get_weights(), target.get_weights(), old, strict=True):
            np.testing.assert_allclose(new, 0.25 * weight + 0.75 * was, rtol=1e-5, atol=1e-7)


def test_a_critic_step_updates_all_critic_variables_and_no_others(pair: Agent) -> None:
    agent = pair
    batch = Batch(*(tf.constant(part[0]) for part in filled_buffer().sample(1, 8)))
    before = weights_of(agent)
    agent.critic_step(batch, tf.zeros(8))
    after = weights_of(agent)
    for name in before:
        moved = not np.array_equal(before[name], after[name])
        mine = name.startswith(("critic:", "critic_optimizer:")) and "learning_rate" not in name
        assert moved == mine, name


def test_an_actor_step_updates_all_actor_variables_and_no_others(
    pair: Agent,
) -> None:
    agent = pair
    batch = Batch(*(tf.constant(part[0]) for part in filled_buffer().sample(1, 64)))
    before = weights_of(agent)
    agent.actor_step(batch, agent.outputs(random_of(agent)))
    after = weights_of(agent)
    for name in before:
        moved = not np.array_equal(before[name], after[name])
        mine = name.startswith(("actor:", "actor_optimizer:")) and "learning_rate" not in name
        assert moved == mine, name


def test_metrics_have_one_value_per_update_of_their_network(
    pair: Agent,
) -> None:
    agent = pair
    metrics = agent.train(filled_buffer(), 5)
    of_critics = {"losses/critic", "values/mean", "values/max", "values/target_mean"}
    of_actor = {"losses/actor", "actions/saturation"}
    if hasattr(agent.config, "bc_alpha"):
        of_actor |= {"cloning/error", "cloning/lambda"}
    assert set(metrics) == of_critics | of_actor
    for name, values in metrics.items():
        assert len(values) == (5 // math.lcm(*agent.intervals) if name in of_actor else 5), name
    assert agent.updates == 5


def test_a_non_finite_metric_stops_training_and_names_the_update(agent: Agent) -> None:
    buffer = filled_buffer()
    agent.train(buffer, 2)
    kernel = agent.critic.network.variables[0]
    kernel.assign(np.full(kernel.shape, np.inf))
    with pytest.raises(FloatingPointError, match=r"losses/critic became (nan|inf) in update 3"):
        agent.train(buffer, 2)


@pytest.mark.usefixtures("with_graph")
def test_the_graph_names_networks_losses_and_optimizers(make_pair: Make) -> None:
    graph = make_pair(mode="graph").learner.graph()
    assert graph is not None
    names = {op.name for op in graph.get_operations()}
    for expected in (
        "target/actor_target",
        "target/critic_target",
        "critic_loss/critic",
        "actor_loss/actor",
        "actor_loss/critic_first",
        "critic_optimizer",
        "actor_optimizer",
        "target_update",
    ):
        # In a graph, TensorFlow appends a number to the name when a network is called again.
        assert any(name.startswith((f"{expected}/", f"{expected}_")) for name in names), expected
    assert make_pair().learner.graph() is None


# --- acting -----------------------------------------------------------------------------------


def test_acting_without_exploration_is_deterministic_and_in_bounds(agent: Agent) -> None:
    observations = np.random.default_rng(0).normal(size=(5, 4)) * 100
    actions = agent.act(observations)
    stepped(agent.behavior(), observations)
    np.testing.assert_array_equal(actions, agent.act(observations))
    assert actions.shape == (5, 2)
    assert actions.dtype == np.float32
    assert np.abs(actions).max() <= 1


# All agents explore in the same way, so correlated noise is tested only with TD3.
@pytest.mark.parametrize(
    ("name", "exploration"),
    [
        *(
            pytest.param(*each.values, "gaussian", marks=each.marks)
            for each in _cases(agent_names())
        ),
        ("td3", "ornstein_uhlenbeck"),
    ],
)
def test_exploration_adds_noise_of_the_given_size_and_stays_in_bounds(
    name: str, exploration: str
) -> None:
    observations = np.zeros((5_000, 4))
    agent = small_agent(name, exploration=exploration, exploration_noise=0.1)
    noise = agent.behavior().act(observations) - agent.act(observations)
    assert abs(noise.std() - 0.1) < 0.003  # 0.003 is about four standard errors
    loud = small_agent(name, exploration=exploration, exploration_noise=5.0)
    assert np.abs(loud.behavior().act(observations[:100])).max() == 1


def test_correlated_noise_restarts_with_each_episode() -> None:
    observations = np.zeros((2, 4))
    agent = small_agent("td3", exploration="ornstein_uhlenbeck", exploration_noise=0.01)
    behavior, told = agent.behavior(), agent.behavior()
    for last in [False] * 199 + [True]:
        for each in (behavior, told):
            each.act(observations)
            ended = [each is behavior and last, False]
            each.observe(np.zeros(2), np.array(ended))
    told.on_reset(np.array([True, False]))
    for each in (behavior, told):
        current = each.state()["exploration"]["process"]
        assert not np.any(current[0])
        assert np.all(current[1])


def test_calls_of_act_and_observe_must_alternate(agent: Agent) -> None:
    behavior, observations = agent.behavior(), np.zeros((2, 4))
    with pytest.raises(ValueError, match="observe was called before act"):
        behavior.observe(np.zeros(2), np.zeros(2, bool))
    behavior.act(observations)
    with pytest.raises(ValueError, match=r"act was called twice in a row: .* call observe\("):
        behavior.act(observations)
    with pytest.raises(ValueError, match=r"rewards and ended must have shape \[2\]; got \(3,\)"):
        behavior.observe(np.zeros(3), np.zeros(3, bool))
    behavior.observe(np.zeros(2), np.zeros(2, bool))
    behavior.act(observations)


def test_a_non_finite_action_is_named(agent: Agent) -> None:
    variable = agent.actor.network.variables[0]
    variable.assign(np.full(variable.shape, np.nan))
    agent.refresh()
    for act in (agent.act, agent.behavior().act):
        with pytest.raises(FloatingPointError, match=r"action must be finite; got .*nan"):
            act(np.ones((2, 4)))


def test_acting_during_a_call_of_another_thread_uses_the_weights_before_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, buffer = shared_agent(name), filled_buffer()
    observations, during = np.ones((3, 4), np.float32), []
    before = agent.act(observations)
    agent.policy._cached = None  # as in a new agent

    def learn(*_: object) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        for variable in agent.acting.variables:
            variable.assign(variable.value + 0.1)
            during.append(agent.act(observations))
        return {}, []

    monkeypatch.setattr(agent.learner, "learn", learn)
    agent.train(buffer, 1)
    assert during
    assert all(np.array_equal(each, before) for each in during)
    assert not np.allclose(agent.act(observations), before)


def test_acting_uses_the_trained_actor(name: str) -> None:
    agent, buffer = shared_agent(name, actor_learning_rate=0.1), filled_buffer()
    observations = np.ones((3, 4), np.float32)
    before = agent.act(observations)
    agent.train(buffer, 4)
    after = agent.act(observations)
    assert not np.allclose(before, after)
    np.testing.assert_allclose(after, agent.acting(observations), atol=1e-6)


def test_observations_and_buffers_of_wrong_sizes_are_rejected(agent: Agent) -> None:
    for shape in ((4,), (3, 5), (1, 3, 4)):
        for act in (agent.act, agent.behavior().act):
            with pytest.raises(ValueError, match=r"observations must have shape \[N, 4\], got"):
                act(np.zeros(shape))
    with pytest.raises(ValueError, match=r"shape \[N, 4\], got dict: .*observations.flatten"):
        agent.act({"position": np.zeros(4)})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"buffer must have layout .*observation_size=4.*size=5"):
        agent.train(ReplayBuffer(10, 5, 2), 1)


def test_unsupported_spaces_are_rejected(agent: Agent) -> None:
    kind, box = type(agent), gymnasium.spaces.Box
    with pytest.raises(ValueError, match="actions must be a Box, a discrete space"):
        kind(box(-1, 1, (3,)), gymnasium.spaces.Text(2))
    with pytest.raises(ValueError, match=r"observations are Text\(.*, which networks cannot read"):
        kind(gymnasium.spaces.Text(2), box(-1, 1, (2,)))


# --- saving -----------------------------------------------------------------------------------


def test_every_variable_is_saved(agent: Agent, name: str, tmp_path: Path) -> None:
    for network in agent.modules.networks().values():
        for variable in network.variables:
            variable.assign(np.random.default_rng(0).normal(size=variable.shape))
    for optimizer in (agent.actor.optimizer, agent.critic.optimizer):
        for variable in optimizer.variables[2:]:
            variable.assign(np.random.default_rng(1).uniform(size=variable.shape))
    agent.checkpoint.write(str(tmp_path / "networks"))
    fresh = shared_agent(name, seed=1)
    restore_networks(fresh, str(tmp_path / "networks"))
    assert equal_weights(weights_of(agent), weights_of(fresh))


def test_a_checkpoint_of_other_networks_is_rejected(
    agent: Agent, make: Make, tmp_path: Path
) -> None:
    agent.checkpoint.write(str(tmp_path / "networks"))
    for sizes in ((8,), (16, 16)):
        with pytest.raises(ValueError, match=r"networks|[Ss]hape"):
            restore_networks(make(hidden_sizes=sizes), str(tmp_path / "networks"))


def test_a_new_learning_rate_survives_restoring(agent: Agent, name: str, tmp_path: Path) -> None:
    assert agent.config.actor_learning_rate < 0.1
    agent.checkpoint.write(str(tmp_path / "networks"))
    other = shared_agent(name, actor_learning_rate=0.1)
    restore_networks(other, str(tmp_path / "networks"))
    assert np.isclose(float(other.actor.optimizer.learning_rate), 0.1)


def test_a_non_finite_variable_is_named_and_not_saved(agent: Agent, tmp_path: Path) -> None:
    variable = agent.critic.target.variables[0]
    variable.assign(np.full(variable.shape, np.nan))
    message = f"{variable.path} of critic_target is not finite"
    with pytest.raises(FloatingPointError, match=message):
        agent.checkpoint.write(str(tmp_path / "networks"))
    assert not list(tmp_path.iterdir())


def test_weights_can_be_read_and_set_by_name(agent: Agent, name: str, tmp_path: Path) -> None:
    other = shared_agent(name, seed=1)
    weights = agent.get_weights()
    groups = {path.partition("/")[0] for path in weights}
    assert groups >= {"actor", "actor_target", "critic", "critic_target"}
    assert groups <= agent.modules.networks().keys()
    observations = np.ones((2, 4))
    before = other.act(observations)
    np.savez(tmp_path / "weights.npz", **weights)
    with np.load(tmp_path / "weights.npz", allow_pickle=False) as saved:
        other.set_weights(dict(saved))
    assert equal_weights(other.get_weights(), weights)
    after = other.act(observations)
    np.testing.assert_array_equal(after, agent.act(observations))
    assert not np.allclose(before, after)


def test_weights_include_observation_statistics(name: str) -> None:
    agent = shared_agent(name, normalize_observations=True)
    other = small_agent(name, normalize_observations=True, seed=1)
    agent.normalization.update(np.random.default_rng(0).normal(3.0, 2.0, (100, 4)))
    agent.train(filled_buffer(), 2)
    other.normalization.update(np.ones((1, 4)))
    weights = agent.get_weights()
    other.set_weights(weights)
    assert equal_weights(other.get_weights(), weights)
    other.normalization.sync()
    assert equal_weights(other.get_weights(), weights)
    for path, value in (("observations/mean", np.ones(3)), ("actor/x", np.ones(3))):
        with pytest.raises(ValueError, match=r"shape \(4,\); got|unknown: actor/x"):
            agent.set_weights({**weights, "observations/count": np.array(7), path: value})
        assert equal_weights(agent.get_weights(), weights)
    for part, value, message in (
        ("count", None, "count must be int64 of shape"),
        ("count", np.ones(2), "count must be int64 of shape"),
        ("count", np.array("many"), "count must be int64 of shape"),
        ("count", np.array(2.5), "got float64 of shape"),
        ("count", np.array(-1), "at least 0; got -1"),
        ("squares", -weights["observations/squares"], "must be at least 0"),
        ("foo", np.ones(2), "unknown: observations/foo"),
    ):
        with pytest.raises(ValueError, match=message):
            agent.set_weights({**weights, f"observations/{part}": value})
        assert equal_weights(agent.get_weights(), weights)
    with pytest.raises(ValueError, match="missing: observations/count"):
        agent.set_weights({n: v for n, v in weights.items() if n != "observations/count"})


def test_invalid_weights_are_named_and_change_nothing(agent: Agent) -> None:
    weights = agent.get_weights()
    name = next(iter(weights))
    rest = {key: values for key, values in weights.items() if key != name}
    for given, error, message in (
        (rest, ValueError, f"missing: {name}; unknown: none"),
        (weights | {"actor/x": np.zeros(1)}, ValueError, "missing: none; unknown: actor/x"),
        (weights | {name: weights[name][:1]}, ValueError, f"{name} must be float32 of shape"),
        (weights | {name: weights[name].astype(float)}, ValueError, "got float64 of shape"),
        (weights | {name: weights[name] * np.nan}, FloatingPointError, f"{name} must be finite"),
        (weights | {name: [[1.0], [2.0, 3.0]]}, ValueError, f"{name} must be an array"),
        (weights | {3: np.zeros(1)}, ValueError, "unknown: 3"),
        (None, ValueError, "weights must map names to arrays"),
    ):
        with pytest.raises(error, match=message):
            agent.set_weights(given)
    assert equal_weights(agent.get_weights(), weights)


# --- settings ---------------------------------------------------------------------------------

# Settings whose effects are tested elsewhere, by the file that tests them.
ELSEWHERE = {
    "test_conformance.py": ("mode",),  # in other tests of this file
    "test_own_models.py": ("actor", "critic", "models", "shared_gradient"),
    "test_discrete.py": (
        "exploration_epsilon",
        "gumbel_temperature",
        "logit_penalty",
        "action_masks",
    ),
    "test_images.py": ("encoder_units", "random_shift"),
    "test_rewards.py": ("normalize_rewards",),
    "test_quantization.py": ("quantize_freeze_steps",),
    "test_replay_factory.py": (
        "discount",
        "n_step",
        "prioritized_exponent",
        "prioritized_correction",
        "prioritized_correction_updates",
        "lap_exponent",
    ),
    "test_collector.py": ("hindsight", "hindsight_goals"),
    "test_replicas.py": ("replicas",),
    "test_spaces.py": ("ignore_entries",),
    "test_critic_entries.py": ("critic_entries",),
}
# Settings of one agent that are tested in that agent's test file.
OF_ONE = {
    "td7": (
        "sampling",
        "target_noise",
        "target_noise_clip",
        "copy_every",
    )
}
OF_TD3 = config_class("td3").SETTINGS.keys()
SETTINGS = [
    pytest.param(
        name,
        setting,
        id=f"{name}-{setting.name}",
        # If long tests are skipped, shared settings are tested only with TD3.
        marks=pytest.mark.long if name != "td3" and setting.name in OF_TD3 else (),
    )
    for name in agent_names()
    for setting in agent_class(name).Config.SETTINGS.values()
    if not any(setting.name in names for names in (*ELSEWHERE.values(), OF_ONE.get(name, ())))
]


def _perturbed(name: str, setting: Setting) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns settings with which `setting` has an effect, and a copy that changes its value."""
    base = {}
    for needed in setting.requires:
        if needed.setting and needed.unmet(small_config(name), None) is not None:
            declared = config_class(name).SETTINGS[needed.setting]
            choices = declared.choices or (True, False)
            values = [SimpleNamespace(**{needed.setting: value}) for value in choices]
            meets = next(value for value in values if needed.unmet(value, None) is None)
            base |= vars(meets)
    base |= {"schedule_steps": 3} if "schedule" in base else {}
    if base.get("memory", "none") != "none":
        base |= {"memory_units": 8, "sequence_length": 6, "sequences_per_update": 3}
    value = getattr(small_config(name, **base), setting.name)
    if setting.choices:
        changed = next(choice for choice in reversed(setting.choices) if choice != value)
    elif isinstance(value, bool):
        changed = not value
    elif isinstance(value, tuple):
        changed = (8,)
    elif setting.name == "attention_heads":
        changed = value * 2  # the number of heads must divide memory_units
    else:
        changed = value + 1 if isinstance(value, int) else 0.3
    with_it = {"schedule_steps": 3} if setting.name == "schedule" else {}
    return base, base | with_it | {setting.name: changed}


@functools.cache
def _fingerprint(name: str, settings: tuple[tuple[str, Any], ...]) -> tuple[Any, ...]:
    agent = small_agent(name, **dict(settings))  # in eager mode, which needs no tracing
    behavior = agent.behavior()
    stepped(behavior, np.array([[0.0, 1.0, 2.0, 3.0], [2.0, 0.9, 7.0, 3.0]]))
    agent.train(buffer_for(agent), 2)
    actions = [stepped(behavior, np.ones((2, 4))).tobytes() for _ in range(2)]
    return (*actions, *(weights.tobytes() for weights in weights_of(agent).values()))


@pytest.mark.parametrize(("name", "setting"), SETTINGS)
def test_every_setting_acts(name: str, setting: Setting) -> None:
    base, changed = (tuple(settings.items()) for settings in _perturbed(name, setting))
    assert _fingerprint(name, base) != _fingerprint(name, changed)


@pytest.mark.parametrize("name", agent_names())
def test_presets_are_valid_settings(name: str) -> None:
    for settings in agent_class(name).Config.PRESETS.values():
        run, config = build(name, {"env": "Pendulum-v1", **settings}, is_new=True)
        built = {**run.flat(), **config.flat()}
        assert {key: built[key] for key in settings} == settings


@pytest.mark.parametrize("name", agent_names())
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tau": 0.0}, r"tau must be above 0 and at most 1; got 0.0"),
        ({"tau": 1.5}, r"tau must be above 0 and at most 1; got 1.5"),
        ({"batch_size": 0}, r"batch_size must be at least 1 and at most 1,048,576; got 0"),
        ({"batch_size": 2.5}, r"batch_size must be of type int; got 2.5"),
        ({"actor_learning_rate": -1.0}, r"actor_learning_rate must be above 0; got -1.0"),
        ({"actor_learning_rate": float("nan")}, r"actor_learning_rate must be above 0; got nan"),
        ({"activation": "sine"}, r"activation must be one of relu, .*; got 'sine'"),
        (
            {"hidden_sizes": (16, 0)},
            r"hidden_sizes must be at least 1 and .*; got \(16, 0\)",
        ),
        ({"hidden_sizes": 16}, r"hidden_sizes must be a tuple of int; got 16"),
        ({"layer_norm": 1}, r"layer_norm must be of type bool; got 1"),
        ({"mode": "jit"}, r"mode must be one of eager, graph, xla; got 'jit'"),
        ({"exploration": "epsilon"}, r"exploration must be one of gaussian, .*; got 'epsilon'"),
    ],
)
def test_a_setting_out_of_range_is_named(name: str, settings: dict, message: str) -> None:
    config = config_class(name)
    if not settings.keys() <= config.SETTINGS.keys():
        message = f"unexpected keyword argument '{next(iter(settings))}'"
    with pytest.raises((ValueError, TypeError), match=message):
        config(**settings)


def test_an_invalid_declaration_of_a_setting_is_rejected_with_a_hint() -> None:
    for kind, default in ((int, 3), (list, setting((), "A list"))):
        body = {"__annotations__": {"extra": kind}, "extra": default}
        with pytest.raises(TypeError, match=r"extra must be an int, .* declared with .*setting"):
            type("Odd", (Settings,), body)


def test_a_subclass_can_change_defaults_and_remove_settings() -> None:
    class Least(config_class("td3")):
        DEFAULTS = MappingProxyType({"tau": 0.5, "n_step": 3})
        WITHOUT = frozenset({"layer_norm"})

        extra: int = setting(1, "Mine", at_least=0)

    assert (Least().tau, Least(n_step=2).n_step, Least().extra) == (0.5, 2, 1)
    assert Least.SETTINGS["tau"].default == 0.5
    assert Least.SETTINGS["extra"].group.heading == "Least"
    assert Least.SETTINGS["tau"].group is config_class("td3").SETTINGS["tau"].group
    with pytest.raises(ValueError, match=r"tau must be above 0 and at most 1; got 2.0"):
        Least(tau=2.0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'layer_norm'"):
        Least(layer_norm=True)
    with pytest.raises(TypeError, match=r"Wrong: 'tua' is not an inherited setting"):
        type("Wrong", (Least,), {"DEFAULTS": {"tua": 0.5}})
    with pytest.raises(TypeError, match=r"Wrong.scale has no type: declare scale: float = \.\.\."):
        type("Wrong", (Least,), {"scale": setting(1.0, "Mine")})


@pytest.mark.parametrize("name", PAIRS)
def test_flat_settings_recreate_equal_settings(name: str) -> None:
    kind = agent_class(name).Config
    config = kind(memory="gru", memory_units=8, exploration_noise=0.3, logit_penalty=0.1)
    assert kind(**config.flat()) == config
    assert config.changed() == ["memory", "memory_units", "exploration_noise", "logit_penalty"]


# --- normalized observations --------------------------------------------------------------------


def _shifted(transitions: Transition) -> Transition:
    """Returns the same transitions with shifted and rescaled observations."""
    return transitions._replace(
        observation=transitions.observation * 50.0 + 7.0,
        next_observation=transitions.next_observation * 50.0 + 7.0,
    )


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        pytest.param(
            *each.values,
            marks=() if each.values in EAGER else pytest.mark.long,
        )
        for each in MODES_AND_AGENTS
    ],
)
def test_normalization_cancels_the_units_of_observations(name: str, mode: str) -> None:
    settings = {"precision": "float64"}
    # With this delay, TD3 compiles one program instead of two.
    settings |= {"policy_delay": 1} if name == "td3" else {}
    plain = small_agent(name, **settings)
    scaled = small_agent(name, normalize_observations=True, mode=mode, **settings)
    scaled.normalization.update(
        np.array([[7.0 - 50.0] * 4, [7.0 + 50.0] * 4])
    )  # these observations have mean 7 and standard deviation 50
    transitions = random_transitions(200)
    for agent, rows in ((plain, transitions), (scaled, _shifted(transitions))):
        buffer = ReplayBuffer(1000, 4, 2, seed=0)
        buffer.add(rows)
        agent.train(buffer, 2)
    after = weights_of(scaled)
    for path, values in weights_of(plain).items():
        np.testing.assert_allclose(after[path], values, 1e-4, 1e-5, err_msg=path)
    observation = np.array([[0.5, -1.0, 0.0, 2.0]])
    np.testing.assert_allclose(
        scaled.act(observation * 50 + 7),
        plain.act(observation),
        1e-4,
        1e-5,
    )


@pytest.mark.parametrize("name", _cases(agent_names()))
def test_training_without_recorded_observations_is_rejected(name: str) -> None:
    agent = shared_agent(name, normalize_observations=True)
    with pytest.raises(
        ValueError, match=r"no observations were recorded: collect with agent\.behavior"
    ):
        agent.train(filled_buffer(), 4)


@pytest.mark.parametrize("name", _cases(agent_names()))
def test_networks_share_statistics_that_change_only_when_training(
    name: str,
) -> None:
    agent = shared_agent(name, normalize_observations=True)
    assert agent.normalization is not None
    agent.normalization.update(np.random.default_rng(0).normal(3.0, 2.0, (100, 4)))
    agent.train(filled_buffer(), 4)
    mean, scale = agent.normalization.mean.numpy(), agent.normalization.scale.numpy()
    means = [
        variable
        for name, network in agent.modules.networks().items()
        for variable in network.variables
        if variable.path == "observation_normalization/mean" and name != "checkpoint"
    ]
    assert len(means) == (1 if name == "td7" else 4)
    assert all(mean is agent.normalization.mean for mean in means)
    row = np.ones((1, 4))
    acted = agent.act(row)
    agent.normalization.update(np.full((1000, 4), 100.0))
    np.testing.assert_array_equal(agent.act(row), acted)
    np.testing.assert_array_equal(agent.normalization.mean.numpy(), mean)
    np.testing.assert_array_equal(agent.normalization.scale.numpy(), scale)
    agent.train(filled_buffer(), 4)
    assert (agent.normalization.mean.numpy() > mean).all()
