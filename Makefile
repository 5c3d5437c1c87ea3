# `make demo` and `make test` install everything they need, given Python 3.11+ and access to packages.

.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
GENERATORS := $(VENV)/generators

COMPOSE := docker-compose.yml docker-compose.gpu.yml docker-compose.auth.yml docker-compose.monitoring.yml docker-compose.hooks.yml
SECRETS := secrets/database_password secrets/mlflow_password secrets/mlflow_session_key secrets/grafana_password

.PHONY: help demo up test stories check secrets
.DELETE_ON_ERROR:

help: ## List these commands
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

demo: $(INSTALLED) ## Run the whole service on six weeks of real flights, then stop
	@$(BIN)/morrow demo

up: $(INSTALLED) ## Run the service with its own PostgreSQL and MLflow until Ctrl-C
	@$(BIN)/morrow up

# If Python keeps no bytecode, every process of every test compiles all of Morrow again.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

test: $(INSTALLED) $(GENERATORS)/.installed ## Run every test but the stories
	@$(PYTEST) -m "not story"

stories: $(INSTALLED) ## Run the stories: long tests of the whole of Morrow under faults and load
	@$(PYTEST) -m story

secrets: $(SECRETS) ## Write the secrets that docker compose mounts, unless they exist
	@echo "The secrets of docker compose are in secrets/."

check: $(INSTALLED) ## Check format, lint, types, import layers and deployment files
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/hadolint docker/*.Dockerfile
	@$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec $(COMPOSE)
	@$(BIN)/python -m pytest --quiet --no-header tests/unit/repository/test_helm_chart.py

# Letters and digits only; the folder is closed to other users of this machine.
secrets/%:
	@mkdir -p -m 700 secrets
	@$(PYTHON) -c 'import secrets; print(secrets.token_hex(32))' > $@
	@chmod 444 $@

$(INSTALLED): pyproject.toml client/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Morrow needs Python 3.11 or newer.")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing Morrow and what it needs into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet uv
	@UV_FIND_LINKS="$${UV_FIND_LINKS:-$$PIP_FIND_LINKS}" $(BIN)/uv pip install --quiet --python $(BIN)/python \
		--compile-bytecode --constraint constraints.txt --editable '.[dev]' --editable client
	@touch $@

# Generators of clients need other versions of some libraries than Morrow, so they have an environment of their own.
$(GENERATORS)/.installed: tests/generators/requirements.txt tests/generators/package-lock.json $(INSTALLED)
	@rm -f $@
	@echo "Installing generators of clients into $(GENERATORS) ..."
	@mkdir -p $(GENERATORS)/typescript
	@cp tests/generators/package.json tests/generators/package-lock.json $(GENERATORS)/typescript
	@$(PYTHON) -m venv --without-pip $(GENERATORS) && \
		$(BIN)/uv pip install --quiet --python $(GENERATORS)/bin/python --requirement tests/generators/requirements.txt && \
		(! command -v npm >/dev/null || npm ci --silent --no-audit --no-fund --fetch-retries=1 --fetch-timeout=60000 --prefix $(GENERATORS)/typescript) && \
		touch $@ || echo "They could not be installed: the tests with them are skipped."
