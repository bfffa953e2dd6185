# Every target sets itself up: it needs Python 3.11 or newer with venv and pip, and nothing else.
# Only `make lock` needs uv.

PYTHON ?= python3
WORKERS ?= 3  # One more than cores, for many tests wait for processes.
SPARK_WORKERS ?= 2
FUZZ_SECONDS ?= 60
QUICK ?=
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
FUZZ_STAMP := $(VENV)/.fuzz-stamp
PEERS_STAMP := $(VENV)/.peers-stamp
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help run cluster pipeline quickstart test soak fuzz check style types tidy bench format lock clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(STAMP)  ## the main job: a cluster, a killed leader, Spark, an audit (examples/ledger; ARGS="--events 50000")
	$(BIN)/python -m examples.ledger $(ARGS)

cluster: $(STAMP)  ## three nodes whose leader is killed, and nothing is lost; no Java needed (examples/cluster.py)
	$(BIN)/python examples/cluster.py $(ARGS)

pipeline: $(STAMP)  ## log → Spark Declarative Pipelines → tables and log (examples/declarative)
	$(BIN)/python -m examples.declarative $(ARGS)

quickstart: $(STAMP)  ## the log in one process (examples/quickstart.py)
	$(BIN)/python examples/quickstart.py $(ARGS)

test: $(STAMP)  ## check, then all tests (WORKERS=3, ARGS="-k name")
	@$(MAKE) --no-print-directory -j 2 --output-sync check
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not soak" --ignore=tests/spark --ignore=tests/tidy $(ARGS)
	$(BIN)/python -m pytest -n $(SPARK_WORKERS) --dist worksteal -m "not soak" tests/spark $(ARGS) || test $$? -eq 5  # none fits ARGS

soak: $(STAMP)  ## what takes too long for every change: Spark under kills and on clusters, all crash points, 5,000 seeds
	$(BIN)/python -m pytest -n $(SPARK_WORKERS) --dist loadfile -m soak $(ARGS)
	$(BIN)/tidelog simulate --seeds 5000

fuzz: $(FUZZ_STAMP)  ## bytes that coverage makes up, into all that reads from the wire (FUZZ_SECONDS=60 each)
	for harness in frames messages batches replica nodes; do \
		$(BIN)/python -m tests.fuzz.atheris_$$harness -max_total_time=$(FUZZ_SECONDS) $(ARGS) || exit 1; \
	done

check: style types tidy  ## format, lint, types, layers, tidy

style: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/mypy

tidy: $(STAMP)
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest -q tests/tidy

bench: $(PEERS_STAMP)  ## measure against other systems on this machine (QUICK=1: does it work?, ARGS="--only peers --write")
	$(BIN)/python -m bench $(if $(QUICK),--quick) $(ARGS)

format: $(STAMP)  ## rewrite the source in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock:  ## pin every dependency with its hashes (needs uv; ARGS=--upgrade for newer ones)
	uv pip compile pyproject.toml --group dev --extra cli --extra bench --extra fast --extra spark --universal \
		--python-version 3.11 --generate-hashes --no-header --no-annotate \
		--no-emit-index-url --quiet --output-file requirements.lock $(ARGS)
	uv pip compile --group pyproject.toml:fuzz --universal --python-version 3.11 --generate-hashes --no-header \
		--no-annotate --no-emit-index-url --quiet --output-file requirements-fuzz.lock $(ARGS)
	uv pip compile --group pyproject.toml:peers --constraint requirements.lock --universal --python-version 3.11 \
		--generate-hashes --no-header --no-annotate --no-emit-index-url --quiet --output-file requirements-peers.lock $(ARGS)

clean:  ## remove all that make made, the virtual environment too
	rm -rf $(VENV) build dist .coverage* .fuzz .hypothesis .peers .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} +

# The build backend is in the lock too, so the package itself is installed without isolation.
$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Tidelog needs Python 3.11 or newer, not " + sys.version.split()[0] + ": make PYTHON=python3.x ..." if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --require-hashes -r requirements.lock
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

# Nothing but `make fuzz` needs the fuzzer.
$(FUZZ_STAMP): $(STAMP) requirements-fuzz.lock
	$(PIP) install --require-hashes -r requirements-fuzz.lock
	@touch $@

# Nothing but `make bench` needs the other systems and their clients, and it leaves out what is missing.
$(PEERS_STAMP): $(STAMP) requirements-peers.lock
	@if $(PIP) install --require-hashes -r requirements-peers.lock; then touch $@; \
	else echo "clients of other systems cannot be installed: those systems are left out"; fi
