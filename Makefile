# Everything a developer does, each by one command that sets up what it needs first.
#
#   .venv        the compiled build, with PySpark where a target needs it
#   .venv-pure   the same sources in plain Python
#
# Both hold wheels built from src/ and are rebuilt when a source changes: never editable, never in
# place (a compiled module beside its source would shadow later edits).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.NOTPARALLEL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# The first Python of at least 3.11; PYTHON=… takes another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
ARGS ?=

# Directories are among them, so that a deleted file counts as a change.
SOURCES := $(shell find src \( -name __pycache__ -o -name '*.egg-info' \) -prune -o -print) setup.py pyproject.toml
PIP := -m pip --disable-pip-version-check --quiet
PYTEST := -m pytest --hypothesis-profile=ci
SLOW := crash or differential or interop or spark

.PHONY: help setup demo serve test check differential model chaos soak bench fmt clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: .venv/.built .venv/.spark .venv/.classes .venv-pure/.built ## build and install both builds

demo: .venv/.built .venv/.spark ## broker, crash, streams and Spark on real log lines (ARGS="--input DIR")
	.venv/bin/leveret demo $(ARGS)

serve: .venv/.built ## run a broker (ARGS="--port 5673")
	.venv/bin/leveret serve $(ARGS)

test: setup ## all tests: both builds, then crash, interop and Spark on the compiled one
	LEVERET_EXPECT_BUILD=pure .venv-pure/bin/python $(PYTEST) -m "not ($(SLOW))" $(ARGS)
	LEVERET_EXPECT_BUILD=compiled .venv/bin/python $(PYTEST) -m "not differential" $(ARGS)

check: setup ## everything that must hold before a change lands
	tools/check

differential: .venv/.built ## the same scripts on RabbitMQ and on Leveret (ARGS="-k tx")
	.ci/packages rabbitmq-server
	LEVERET_EXPECT_BUILD=compiled .venv/bin/python $(PYTEST) tests/differential tests/house/test_differences.py $(ARGS)

model: .venv/.built ## 100,000 steps of the broker against the reference broker (ARGS="--seed 7")
	.venv/bin/python tests/model/runs.py $(ARGS)

chaos: .venv/.built ## kills, power cuts and damage on real processes, with a scoreboard (ARGS="--share 0.01")
	.ci/packages strace e2fsprogs rabbitmq-server
	.venv/bin/python -m chaos.run $(ARGS)

soak: .venv/.built .venv/.spark ## Spark's driver, workers and the broker killed while streams are read and written (ARGS="--share 0.1")
	.venv/bin/python -m soak.run $(ARGS)
	.venv/bin/python -m soak.cluster
	.venv/bin/python $(PIP) install 'pyspark[pipelines]>=4.2,<4.4'
	.venv/bin/python -m soak.declarative

bench: .venv/.built .venv/.spark .venv-pure/.built ## speed beside RabbitMQ, cold start, memory (ARGS="--only durable")
	.ci/packages rabbitmq-server
	.venv/bin/python bench/side_by_side.py --pure-python .venv-pure/bin/python $(ARGS)
	.venv/bin/python bench/start.py --rabbitmq
	.venv/bin/python bench/many.py
	.venv/bin/python bench/deep.py
	.venv/bin/python bench/large.py
	.venv/bin/python bench/stream.py --messages 10000000
	.venv/bin/python bench/spark.py
	.venv/bin/python bench/route.py

fmt: .venv/.deps ## format, and mend what can be mended by rule
	.venv/bin/ruff format
	.venv/bin/ruff check --fix

clean: ## remove what the targets made
	rm -rf .venv .venv-pure build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache

# -- setting up ------------------------------------------------------------------------------------

.venv/.deps .venv-pure/.deps: %/.deps: pyproject.toml tools/requirements.py
	@[ -n "$(PYTHON)" ] || { echo "Leveret needs Python 3.11 or later; name one by PYTHON=…" >&2; exit 1; }
	@echo "$*: installing what the project needs"
	@[ -x $*/bin/python ] || $(PYTHON) -m venv $*
	@$*/bin/python tools/requirements.py dev > $*/requirements.txt
	@$*/bin/python $(PIP) install -r $*/requirements.txt
	@touch $@

.venv/.spark: .venv/.deps
	@echo ".venv: installing PySpark and a Java (450 MB, once)"
	@.venv/bin/python tools/requirements.py spark jdk delta iceberg > .venv/requirements-spark.txt
	@.venv/bin/python $(PIP) install -r .venv/requirements-spark.txt
	@touch $@

# Tests and jobs start a JVM again and again: sooner with its classes at hand (170 MB, once).
.venv/.classes: .venv/.spark .venv/.built
	@echo ".venv: keeping the classes of Spark's JVM"
	@.venv/bin/python -m leveret.spark.class_data > .venv/classes.log 2>&1 || \
		echo ".venv: this Java keeps none (.venv/classes.log): Spark starts slower, and works"
	@touch $@

.venv/.built: .venv/.deps $(SOURCES)
	@echo ".venv: compiling Leveret"
	@LEVERET_PURE=0 LEVERET_REQUIRE_COMPILED=1 .venv/bin/python $(PIP) install --no-build-isolation --no-deps --force-reinstall .
	@touch $@

.venv-pure/.built: .venv-pure/.deps $(SOURCES)
	@echo ".venv-pure: installing Leveret in plain Python"
	@LEVERET_PURE=1 LEVERET_REQUIRE_COMPILED=0 .venv-pure/bin/python $(PIP) install --no-build-isolation --no-deps --force-reinstall .
	@touch $@
