# Every target makes the environment it needs; on a bare machine Python (3.11 or newer) and its venv module do.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Real programs to compare with, each in an environment of its own, and the packages of the relays written for the bench.
BENCH_ENVS := fastapi sglang vllm guidellm

.PHONY: help compare bench-env test lint format unit lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

compare: $(STAMP) ## what does the pre-filter cost? two minutes, ends with a verdict and a report
	$(BIN)/disagg-sim compare $(ARGS)

bench-env: $(STAMP) $(BENCH_ENVS:%=.bench/%/.installed) ## what `make bench` compares with, as far as it can be had here
	@$(BIN)/python -m bench.candidates

test: $(STAMP) lint unit ## all tests and checks: lint, types, architecture, documents against code, tests

lint: $(STAMP) ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: $(STAMP) ## the tests alone
	$(BIN)/python -m pytest $(ARGS)

.PHONY: bench
bench: $(STAMP) ## costs beside other relays, fakes and clients: half an hour, writes docs/benchmarks.md
	$(BIN)/python -m bench $(ARGS)

format: $(STAMP) ## rewrite the files in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: $(STAMP) ## renew requirements.lock from pyproject.toml
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --extra dev --generate-hashes \
	    --no-header --no-annotate --no-emit-index-url pyproject.toml -o requirements.lock

clean: ## remove the environments and caches; runs stay
	rm -rf $(VENV) .bench .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info

# One that cannot be installed is left out and the reason kept: the bench then says so and goes on without it.
.bench/%/.installed: bench/candidates/requirements/%.txt
	@rm -rf .bench/$* && mkdir -p .bench
	@if { $(PYTHON) -m venv .bench/$* && .bench/$*/bin/python -m pip install --quiet --disable-pip-version-check \
	    --no-deps --only-binary :all: -r $<; } > .bench/$*.log 2>&1; then touch $@; else rm -rf .bench/$*; fi

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("disagg-sim needs Python 3.11 or newer, this is %d.%d; give one with PYTHON=..." % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
