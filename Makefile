# Each target first installs its requirements in .venv; only Python is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

AGENT ?= td3
ENV ?= HalfCheetah-v5
STEPS ?= 200000
SEED ?= 0
SEEDS ?=
ARGS ?=
LOGDIR ?= runs
JOBS ?= 2
KILLS ?= 20
CASES ?= 10000
TABLES ?=
PARTS ?=
ROUNDS ?=

.DEFAULT_GOAL := help
.PHONY: help install train test test-quick test-long lint format typecheck check docs dist bench reproduce pictures prove-resume same-bits fuzz tensorboard test-floors test-robotics test-export test-ray test-extras clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

install: $(VENV)/installed  ## Create .venv with all dependencies

$(VENV)/installed: setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "eagerly needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Try: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

train: install  ## Train (ENV= AGENT= STEPS= SEED= or SEEDS=0..4 JOBS=, ARGS=); run it again to resume
	$(BIN)/python scripts/train.py $(AGENT) --env $(ENV) --steps $(STEPS) $(if $(SEEDS),\
	    --seeds $(SEEDS) --jobs $(JOBS),--seed $(SEED) \
	    $(if $(findstring --run-dir,$(ARGS)),,--run-dir runs/$(AGENT)-$(ENV)-$(SEED))) $(ARGS)

tensorboard: install  ## Show TensorBoard for runs/ (LOGDIR=)
	$(BIN)/tensorboard --logdir $(LOGDIR)

# One process more than cores, because some tests wait for a process or a time limit.
test test-long test-floors: JOBS := 3
test: install  ## Run the test suite (JOBS= processes; ARGS= go to pytest)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

# Tests that neither train nor compile an update.
QUICK := tests/buffers tests/eagerly/curves tests/eagerly/datasets tests/eagerly/environments tests/eagerly/policies tests/eagerly/spaces \
    $(wildcard tests/eagerly/test_*.py) \
    $(foreach name,builder clock losses reference schedule,tests/agents/test_$(name).py) \
    $(foreach name,encoders models networks normalization sale,tests/networks/test_$(name).py) \
    $(foreach name,environment_groups recovery,tests/eagerly/workers/test_$(name).py) \
    $(foreach name,calibration formats integers rounding staging ties,tests/eagerly/export/test_$(name).py) \
    $(foreach name,append_log arrays evaluations event_log files lock presets run,tests/eagerly/storage/test_$(name).py) \
    $(foreach name,evaluation policy_checkpoints update_budget,tests/eagerly/training/test_$(name).py)
test-quick: install  ## Run the tests that neither train nor compile an update (JOBS= ARGS=)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(QUICK) $(ARGS)

test-long: install  ## Run the long tests, which `make test` excludes (JOBS= ARGS=)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m long $(ARGS)
	$(if $(ARGS),,$(MAKE) test-export test-ray)

lint: install  ## Check style, imports and prose
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tests.prose

format: install  ## Apply the style that lint checks
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

typecheck: install  ## Check types
	$(BIN)/mypy -p eagerly

check: lint typecheck test test-long  ## Run lint, typecheck and all tests

docs: install  ## Build the documentation into build/docs
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	CUDA_VISIBLE_DEVICES=-1 $(BIN)/sphinx-build --quiet --fail-on-warning -b html -c docs . build/docs
	@echo "open build/docs/index.html"

dist: STEPS := 400
dist: install  ## Build and check the wheel and the sdist, and train with each in an empty environment (STEPS=)
	$(BIN)/python -m tests.distribution --steps $(STEPS)

bench: install  ## Measure speed against PyTorch, Stable-Baselines3 and SBX (TABLES= ROUNDS= ARGS=)
	$(BIN)/python -m eagerly.benchmarks $(TABLES) $(if $(ROUNDS),--rounds $(ROUNDS)) $(ARGS)

reproduce: install  ## Train all runs of the learning curves, for hours (PARTS= JOBS= ARGS=)
	$(BIN)/python -m eagerly.benchmarks.reproduce $(PARTS) --jobs $(JOBS) $(ARGS)

# Learning curves in README and docs, from the stored tables.
LEARNING := benchmarks/learning
PLOT = CUDA_VISIBLE_DEVICES=-1 $(BIN)/python scripts/plot.py --theme both
pictures: install  ## Draw the learning curves of README and docs from benchmarks/learning
	$(PLOT) $(LEARNING)/td3-million-*.csv --rename td3-million TD3 -o docs/pictures/million.png
	$(PLOT) $(LEARNING)/td7-HalfCheetah-v5-*.csv $(LEARNING)/td3-HalfCheetah-v5-*.csv \
	    $(LEARNING)/sb3-td3-HalfCheetah-v5-*.csv --rename td7 TD7 --rename td3 TD3 \
	    --rename sb3-td3 "TD3, Stable-Baselines3" -o docs/pictures/learning.png
	$(PLOT) $(foreach env,HalfCheetah Hopper,$(foreach agent,td7 td3,$(LEARNING)/$(agent)-$(env)-v5-*.csv)) \
	    --until 100000 --rename td7 TD7 --rename td3 TD3 -o docs/pictures/td7.png
	$(PLOT) $(LEARNING)/td7-long-*.csv $(LEARNING)/td3-million-Hopper-v5-*.csv --until 300000 \
	    --rename td7-long TD7 --rename td3-million TD3 -o docs/pictures/td7-hopper.png
	$(PLOT) $(LEARNING)/td7-efficient-*-v5-[5-9].csv $(LEARNING)/td3-Humanoid-v5-*.csv \
	    $(LEARNING)/td3-million-[!H]*.csv $(LEARNING)/td3-million-H[ao]*.csv --until 100000 \
	    --rename td7-efficient "TD7, efficient" --rename td3-million TD3 --rename td3 TD3 \
	    -o docs/pictures/efficient.png
	$(PLOT) $(LEARNING)/ddpg-HalfCheetah-v5-*.csv $(LEARNING)/sb3-ddpg-HalfCheetah-v5-*.csv \
	    --rename ddpg DDPG --rename sb3-ddpg "DDPG, Stable-Baselines3" -o docs/pictures/ddpg.png
	$(PLOT) $(foreach kind,half-HalfCheetah half-cloning-HalfCheetah much-noise-Pendulum \
	    much-noise-cloning-Pendulum,$(LEARNING)/td3_bc-$(kind)-v[0-9]-*.csv) \
	    --rename td3_bc-half "TD3+BC, noise 0.1" --rename td3_bc-half-cloning "behavior cloning, noise 0.1" \
	    --rename td3_bc-much-noise "TD3+BC, noise 0.7" \
	    --rename td3_bc-much-noise-cloning "behavior cloning, noise 0.7" -o docs/pictures/td3-bc.png
	$(PLOT) $(LEARNING)/td3-Walker2d-v5-*.csv $(LEARNING)/ddpg-Walker2d-v5-*.csv \
	    --rename td3 TD3 --rename ddpg DDPG -o docs/pictures/walker.png
	$(PLOT) $(LEARNING)/td3-HalfCheetah-v5-*.csv $(LEARNING)/td3-8-environments-HalfCheetah-v5-*.csv \
	    --until 100000 --rename td3 "TD3, 1 environment" \
	    --rename td3-8-environments "TD3, 8 environments" -o docs/pictures/vector.png
	$(PLOT) $(LEARNING)/td3-rounds-HalfCheetah-v5-*.csv $(LEARNING)/td3-rounds-lag-HalfCheetah-v5-*.csv \
	    --rename td3-rounds "TD3, policy lag 0" --rename td3-rounds-lag "TD3, policy lag 1" \
	    -o docs/pictures/lag.png
	$(PLOT) $(LEARNING)/td3-HalfCheetah-v5-*.csv $(LEARNING)/td3-normalized-HalfCheetah-v5-*.csv \
	    $(LEARNING)/td3-Reacher-v5-*.csv $(LEARNING)/td3-normalized-Reacher-v5-*.csv \
	    $(LEARNING)/td3-Pendulum-v1-*.csv $(LEARNING)/td3-normalized-Pendulum-v1-*.csv \
	    --until 100000 --rename td3 TD3 \
	    --rename td3-normalized "TD3, normalized observations" -o docs/pictures/normalization.png
	$(PLOT) $(LEARNING)/td3-normalized-HalfCheetah-v5-*.csv $(LEARNING)/td3-int8-HalfCheetah-v5-*.csv \
	    --until 100000 --rename td3-normalized TD3 --rename td3-int8 "TD3, int8" \
	    -o docs/pictures/quantization.png
	$(PLOT) $(LEARNING)/td3-FetchReach-v4-*.csv $(LEARNING)/td3-hindsight-FetchReach-v4-*.csv \
	    --metric success --rename td3 TD3 --rename td3-hindsight "TD3, hindsight" \
	    -o docs/pictures/hindsight.png
	$(PLOT) $(foreach env,HalfCheetah Hopper,$(foreach kind,td3 td3-lap td3-3-steps td3-3-steps-lap,\
	    $(LEARNING)/$(kind)-$(env)-v5-[0-2].csv)) --until 100000 --rename td3 TD3 \
	    --rename td3-lap "TD3, LAP" --rename td3-3-steps "TD3, n = 3" \
	    --rename td3-3-steps-lap "TD3, n = 3 with LAP" -o docs/pictures/replay.png
	$(PLOT) $(LEARNING)/td3-InvertedDoublePendulum-v5-*.csv $(LEARNING)/td3-InvertedPendulum-v5-*.csv \
	    $(LEARNING)/td3-Reacher-v5-*.csv --rename td3 TD3 -o docs/pictures/solved.png
	$(PLOT) $(foreach kind,lstm gru attention without,$(LEARNING)/td3-$(kind)-PendulumPositions-v1-*.csv) \
	    --rename td3-lstm "TD3, LSTM" --rename td3-gru "TD3, GRU" \
	    --rename td3-attention "TD3, attention" --rename td3-without "TD3, no memory" \
	    -o docs/pictures/memory.png
	$(PLOT) $(foreach kind,gru without,$(LEARNING)/td3-$(kind)-PendulumFlickering-v1-*.csv) \
	    --rename td3-gru "TD3, GRU" --rename td3-without "TD3, no memory" \
	    -o docs/pictures/flickering.png
	$(PLOT) $(LEARNING)/td3-CartPole-v1-*.csv $(LEARNING)/td3-gru-CartPolePositions-v1-*.csv \
	    --rename td3 TD3 --rename td3-gru "TD3, GRU" -o docs/pictures/cart-pole.png
	$(PLOT) $(LEARNING)/td3-Taxi-v4-*.csv $(LEARNING)/td3-unmasked-Taxi-v4-*.csv \
	    --rename td3 "TD3, masked" --rename td3-unmasked "TD3, no mask" -o docs/pictures/taxi.png
	$(PLOT) $(LEARNING)/td3-PendulumPixels-v1-*.csv --rename td3 "TD3, three frames" \
	    -o docs/pictures/pixels.png
	$(PLOT) $(LEARNING)/td3-dm_control_cartpole_swingup-v0-*.csv \
	    $(LEARNING)/td3-LunarLanderContinuous-v3-*.csv --rename td3 TD3 -o docs/pictures/suites.png

prove-resume: STEPS := 20000
prove-resume: install  ## Prove that killed and uninterrupted runs are equal (ENV= AGENT= KILLS= SEED= STEPS=)
	$(BIN)/python -m eagerly.benchmarks.prove_resume $(AGENT) --env $(ENV) --steps $(STEPS) --seed $(SEED) \
	    --kills $(KILLS) $(ARGS)

same-bits: install  ## Compare eleven short trainings with stored digests, bit by bit (ARGS=--write stores new ones)
	$(BIN)/python -m tests.same_bits --jobs $(JOBS) $(ARGS)

fuzz: install  ## Test damaged and hostile run directories, and a crash after every file operation (CASES= JOBS=)
	$(BIN)/python -m tests.fuzzing --cases $(CASES) --jobs $(JOBS)
	$(BIN)/python -m tests.dying

test-floors:  ## Run the tests with the oldest dependencies that setup.cfg allows
	$(PYTHON) -m venv build/floors
	build/floors/bin/python -m pip install --quiet --upgrade pip
	sed -n '/^install_requires/,/^$$/s/^    \(.*\)>=/\1==/p' setup.cfg > build/floors/floors.txt
	build/floors/bin/python -m pip install --quiet -r build/floors/floors.txt pytest pytest-xdist dm-sonnet
	build/floors/bin/python -m pip install --quiet --no-deps --editable .
	build/floors/bin/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

test-robotics:  ## Train in dm_control and gymnasium-robotics, in a separate environment
	$(PYTHON) -m venv build/robotics
	build/robotics/bin/python -m pip install --quiet --upgrade pip
	build/robotics/bin/python -m pip install --quiet --editable '.[robotics]' pytest \
	    --constraint tests/robotics/constraints.txt
	build/robotics/bin/python -m pytest tests/robotics $(ARGS)

test-ray:  ## Test collection on local Ray clusters, whose actors and nodes are killed
	$(PYTHON) -m venv build/ray
	build/ray/bin/python -m pip install --quiet --upgrade pip
	build/ray/bin/python -m pip install --quiet --editable '.[ray]' pytest
	build/ray/bin/python -m pytest -m "long or not long" tests/eagerly/workers/test_ray_workers.py $(ARGS)

test-export:  ## Export policies and run the exports, with the runtimes of the extra `export`
	$(PYTHON) -m venv build/export
	build/export/bin/python -m pip install --quiet --upgrade pip
	build/export/bin/python -m pip install --quiet --editable '.[export]' pytest
	build/export/bin/python -m pytest -m '' tests/eagerly/export $(ARGS)

test-extras:  ## Test PyTorch models, experiment trackers and Minari data, in a separate environment
	$(PYTHON) -m venv build/extras
	build/extras/bin/python -m pip install --quiet --upgrade pip
	build/extras/bin/python -m pip install --quiet --editable '.[torch,wandb,mlflow]' minari pytest dm-sonnet
	build/extras/bin/python -m pytest -m '' tests/agents/test_torch_models.py tests/benchmarks/test_torch_td7.py \
	    tests/scripts/test_own_models.py tests/eagerly/training/test_recording.py \
	    tests/eagerly/training/test_trackers.py $(ARGS)

clean:  ## Remove .venv, build/ and caches; runs stay
	rm -rf $(VENV) build .src/*.egg-info .mypy_cache .pytest_cache .ruff_cache
