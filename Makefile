# `make demo` and `make test` set up everything they need: Python 3.11+ and package access are all that comes first.

.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: help demo up test check

help: ## List these commands
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

demo: $(INSTALLED) ## Run the whole service on six weeks of real flights, then stop
	@$(BIN)/morrow demo

up: $(INSTALLED) ## Run the service with its own PostgreSQL and MLflow until Ctrl-C
	@$(BIN)/morrow up

test: $(INSTALLED) ## Run every test
	@$(BIN)/python -m pytest --numprocesses auto --dist loadfile

check: $(INSTALLED) ## Format, lint, types and the arrows of the house
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Morrow needs Python 3.11 or newer.")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing Morrow and what it needs into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet uv
	@UV_FIND_LINKS="$${UV_FIND_LINKS:-$$PIP_FIND_LINKS}" $(BIN)/uv pip install --quiet --python $(BIN)/python \
		--compile-bytecode --constraint constraints.txt --editable '.[dev]'
	@touch $@
