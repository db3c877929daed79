PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo theory docs test lint format bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## create or refresh .venv; the other targets do this by themselves

$(READY): pyproject.toml setup.py constraints.txt src/relval/envs/atari/_frames.c
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "relval needs Python 3.11 or newer, but $(PYTHON) is older: run make with PYTHON=python3.12, for example"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(READY) ## train PPO and PPO with the relative critic on MinAtar Breakout
	$(BIN)/relval demo

theory: $(READY) ## show the theory at work on small decision processes
	$(BIN)/relval theory

docs: $(READY) ## build the documentation, out/docs/index.html
	$(BIN)/python docs/pictures/draw.py
	$(BIN)/sphinx-build --quiet --fail-on-warning --builder html docs out/docs
	@echo "written: out/docs/index.html"

test: lint ## check style and types, then run all tests
	$(BIN)/python -m pytest

lint: $(READY) ## check style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(READY) ## mend what the style check can mend by itself
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(READY) ## measure speed against peers: the mathematics, and training
	$(BIN)/relval bench math
	$(BIN)/relval bench train

clean: ## remove .venv and everything generated
	rm -rf $(VENV) out .mypy_cache .pytest_cache .ruff_cache .hypothesis
