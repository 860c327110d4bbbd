# The front door: `make help`. It needs make, Python 3.10+, Java 17 and Node 18+ and installs the rest
# into this folder. Variables: PYTHON, PYSPARK (a version), DEMO_ARGS, BENCH_ARGS, PYTEST_ARGS,
# WORKERS (processes that share the tests; 0: one, and no others), MATRIX_ARGS, SEEDS.

PYTHON ?= python3
PYSPARK ?=
DEMO_ARGS ?=
BENCH_ARGS ?=
PYTEST_ARGS ?=
SEEDS ?= 1-20
# Most of the time tests wait, for time to pass or for each other's processes, so that two cores do
# the work of four. See conftest.py.
WORKERS ?= 4

# The benchmarks' own tests start them all.
UNIT := tests/unit tests/property --ignore=tests/unit/project/test_benchmarks.py

VENV := .venv$(if $(PYSPARK),-$(PYSPARK))
PY := $(VENV)/bin/python
PYTEST := $(PY) -m pytest $(PYTEST_ARGS)
PYTEST_PARALLEL = $(PY) -m pytest -n $(WORKERS) $(PYTEST_ARGS)
PINS := requirements/constraints.txt
SPARK_PIN := $(if $(PYSPARK),pyspark==$(PYSPARK),-r requirements/pyspark.txt)

OLD_VENV := .venv-oldest
OLD_PY := $(OLD_VENV)/bin/python

MATRIX_ARGS ?=

WHEELS := .cache/wheels
PIP_OPTIONS := --quiet --no-input --disable-pip-version-check
INSTALL := -m pip install $(PIP_OPTIONS) --use-pep517
export PIP_CACHE_DIR := $(CURDIR)/.cache/pip

# Some tools behave differently where these are set (Hypothesis draws other examples, pytest prints
# more). A run on a CI machine is to be the run that a developer has.
unexport CI BUILD_NUMBER GITHUB_ACTIONS

# PySpark comes as source only, 450 MB that are compressed already; pip would spend minutes on
# compressing them again. So: one wheel without compression, kept for every later environment.
# $(call install_pyspark,<python of the environment>,<requirement>)
define install_pyspark
	@mkdir -p $(WHEELS)
	@$(1) -m pip wheel $(PIP_OPTIONS) --no-deps --no-cache-dir --use-pep517 \
	  --config-settings=--build-option=--compression=stored \
	  --find-links $(WHEELS) --wheel-dir $(WHEELS) $(2)
	@$(1) $(INSTALL) --no-deps --no-index --find-links $(WHEELS) $(2)
endef

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup test test-all test-times unit spark integration contract chaos demo bench check format docs oldest matrix localstack clean

help: ## List these targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.ready ## Make .venv with everything that tests and demo need; no work when up to date.

$(VENV)/.ready: pyproject.toml requirements/constraints.txt requirements/pyspark.txt
	@echo "setting up $(VENV) ..."
	@for tool in java node npm; do command -v $$tool >/dev/null || \
	  { echo "kinesis_ds needs Java 17 and Node 18 or newer to run its tests: no $$tool found"; exit 1; }; done
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "kinesis_ds needs Python 3.10 or newer: make PYTHON=python3.12 ...")'
	@$(PYTHON) -m venv --clear $(VENV)
	$(call install_pyspark,$(PY),$(SPARK_PIN))
	@$(PY) $(INSTALL) -c $(PINS) -e '.[spark,test,dev,demo,bench]'
	@touch $@

test: setup ## Run the tests of a change: every promise once, with our double and local servers.
	$(PYTEST_PARALLEL)

test-all: setup ## Run every test but the soaks: each transport, server and seed.
	$(PYTEST_PARALLEL) -m "not soak" --hypothesis-profile=many

test-times: setup ## Run the tests of a change and show where the time goes.
	$(PYTEST_PARALLEL) -p devtools.run_times

# They compute, and have nothing to wait for.
unit: WORKERS = 2
unit: setup ## Run what needs neither Java nor a server nor patience: for while you edit.
	$(PYTEST_PARALLEL) $(UNIT)

spark: setup ## Run the tests that start Spark.
	$(PYTEST) -m "spark and not soak and not long"

integration: setup ## Run the tests against local servers.
	$(PYTEST_PARALLEL) -m "integration and not soak and not long"

contract: setup ## Run the tests of Kinesis's own behaviour on our double and each local server.
	$(PYTEST_PARALLEL) -m "not soak" integration/contract

chaos: setup ## Run chaos seeds against our double: make chaos SEEDS=1-20.
	$(PY) -m integration.chaos --seeds $(SEEDS)

demo: setup ## Write, kill, restart, reshard, read, and count: the verdict goes to demo-report.json.
	$(PY) -m examples.demo $(DEMO_ARGS)

bench: setup ## Run all benchmarks, in some 18 minutes; tables and charts go to benchmarks/results.
	$(PY) -m benchmarks $(BENCH_ARGS)

check: setup ## Lint, format check and types.
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy

format: setup ## Format the code and sort its imports.
	$(PY) -m ruff check --select I --fix
	$(PY) -m ruff format

docs: setup ## Write the pages that come from the code: options.md, server-differences.md, the end of errors.md.
	$(PY) -m devtools.options_page
	$(PY) -m devtools.differences_page
	$(PY) -m devtools.errors_page

oldest: $(OLD_VENV)/.ready ## Smoke test on PySpark 4.0.5 and the oldest dependencies that we promise.
	$(OLD_PY) -m pytest $(PYTEST_ARGS) integration/test_smoke.py

$(OLD_VENV)/.ready: pyproject.toml requirements/oldest.txt
	@echo "setting up $(OLD_VENV) ..."
	@$(PYTHON) -m venv --clear $(OLD_VENV)
	$(call install_pyspark,$(OLD_PY),"$$(grep ^pyspark== requirements/oldest.txt)")
	@$(OLD_PY) $(INSTALL) -c requirements/oldest.txt -e '.[spark,test]'
	@touch $@

matrix: ## Run the Spark tests on each supported PySpark, on each Python at hand (hours at first).
	@$(PYTHON) -m devtools.matrix $(MATRIX_ARGS)

localstack: ## Run a local Kinesis on 127.0.0.1:4566 until Ctrl-C.
	@$(PYTHON) -m devtools.localstack run

clean: ## Remove everything that the other targets made.
	rm -rf .cache .venv .venv-* build dist .coverage* htmlcov demo-report.json
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -rf artifacts derby.log metastore_db spark-warehouse
