# Needs nothing but Python 3.10 to 3.13 with venv and pip: every target makes `.venv` when it must.

PYTHON ?= python3
WORKDIR ?= data/runs/words
CASE ?= words
CASES := words subwords classify recommend sparse keras softmax language tables scaling
ARGS ?=
WORKERS ?= 2

BIN := .venv/bin
DRIVER := $(wildcard /proc/driver/nvidia/version)$(shell command -v nvidia-smi)
LOCKS := requirements.lock $(if $(DRIVER),requirements-cuda.lock)

.DEFAULT_GOAL := help
.PHONY: help setup train test test-slow lint fix smoke bench tensorboard clean lock

help:  ## print these targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 20

# The stamps are copies of what was installed, so that only a changed lock or a new driver installs
# all again. The lock on .venv.busy lets two targets start side by side in a fresh clone.
setup:  ## make .venv from the lock file; nothing to do when it is up to date (PYTHON=python3.12)
	@if command -v flock >/dev/null; then exec 9>.venv.busy; flock 9; fi; \
	$(INSTALL_LOCKS) && $(INSTALL_PROJECT)
INSTALL_LOCKS = cat $(LOCKS) | cmp -s - .venv/installed.lock || { \
	$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' \
	  >/dev/null 2>&1 || { echo "PYTHON=$(PYTHON) is not Python 3.10 to 3.13 (`$(PYTHON) -V 2>&1 | head -1`):" \
	  "name one, as in: make $(or $(MAKECMDGOALS),setup) PYTHON=python3.12" >&2; exit 1; }; \
	echo "Installing $(strip $(LOCKS)) into .venv: some minutes, 3 GB"; \
	$(PYTHON) -m venv --clear .venv && \
	$(BIN)/python -m pip install --quiet --no-input --disable-pip-version-check --no-deps \
	  $(LOCKS:%=-r %) && \
	cat $(LOCKS) >.venv/installed.lock; }
# As the command and package lexrow, with the files of app/ in place.
INSTALL_PROJECT = cmp -s pyproject.toml .venv/installed.toml || { \
	$(BIN)/python -m pip install --quiet --no-input --disable-pip-version-check --no-deps \
	  --no-build-isolation --editable . && \
	rm -rf lexrow.egg-info && cp pyproject.toml .venv/installed.toml; }

train: setup  ## train word vectors, or go on where the last run stopped (WORKDIR=, ARGS="--flag=")
	$(BIN)/lexrow train --preset=words --workdir="$(WORKDIR)" $(ARGS)

test: setup  ## run the tests but the slow ones (ARGS="-k name")
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow" $(ARGS)

test-slow: setup  ## run the slow tests (ARGS=tests/keras)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m slow $(ARGS)

lint: setup  ## check style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fix: setup  ## correct style and formatting where a program can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

smoke: setup  ## train, score, query and export a small model: under two minutes
	@set -e; dir=`mktemp -d`; trap 'rm -rf "$$dir"' EXIT; set -x; \
	$(BIN)/lexrow train --preset=smoke --workdir="$$dir/run"; \
	$(BIN)/lexrow evaluate --workdir="$$dir/run"; \
	$(BIN)/lexrow neighbors --workdir="$$dir/run" array string; \
	$(BIN)/lexrow export --workdir="$$dir/run" --format=word2vec_binary \
	  --output="$$dir/vectors.bin"; \
	$(BIN)/lexrow evaluate --vectors="$$dir/vectors.bin"

bench: setup  ## run a benchmark beside its peers (CASE=words, ARGS="--epochs=2"; ARGS=--help)
	@test "$(filter $(CASE),$(CASES))" || \
	  { echo "CASE=$(CASE): no such case; choose from $(CASES)" >&2; exit 2; }
	$(BIN)/python -m tests.benchmarks.$(CASE) $(ARGS)

tensorboard: setup  ## serve the newest run, or WORKDIR=
	@dir="$(if $(filter file,$(origin WORKDIR)),$(shell ls -td data/runs/*/ 2>/dev/null | head -1),\
	  $(WORKDIR))"; dir=`echo $$dir`; \
	test -d "$$dir" || { echo "No run to show$${dir:+ in $$dir}; train first: make train" >&2; exit 1; }; \
	test -d "$$dir/tensorboard" && dir="$$dir/tensorboard"; \
	exec $(BIN)/python -c 'from app.cli import startup; startup.start_tensorflow(); \
	  from tensorboard import main; main.run_main()' --logdir="$$dir" --load_fast=false $(ARGS)

clean:  ## remove .venv and caches; data/ stays
	rm -rf .venv .venv.busy .pytest_cache .ruff_cache .mypy_cache
	find app tests -name __pycache__ -prune -exec rm -rf {} +

lock:  ## compile the lock files anew from pyproject.toml (for maintainers; needs uv)
	uv pip compile $(COMPILE) --upgrade --output-file requirements.lock
	{ echo "# Installed beside requirements.lock where there is an NVIDIA driver (make lock)"; \
	uv pip compile $(COMPILE) --extra cuda --constraint requirements.lock --no-annotate --no-header \
	  | grep '^nvidia-'; } >requirements-cuda.lock
COMPILE := pyproject.toml --quiet --universal --python-version 3.10 --extra dev --extra plot \
  --custom-compile-command "make lock"
