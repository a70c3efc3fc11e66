# Everything runs in .venv, which the first target that needs it makes.
# ARGS is handed on:  make test ARGS="-k quantity -x"

PYTHON ?= python3
ARGS   ?=

VENV  := .venv
PEERS := .venv-peers
BIN   := $(VENV)/bin
STAMP := $(VENV)/.made

.DEFAULT_GOAL := help
.PHONY: help stability test lint format controls readme statistics bench bench-peers gpu-check clean

help: ## say what the targets do
	@sed -n -E 's/^([a-z-]+):[^#]*## (.*)$$/\1|\2/p' Makefile | \
		while IFS='|' read -r name text; do printf '  make %-12s %s\n' "$$name" "$$text"; done

stability: $(STAMP) ## run the stability cases of cases/, quick tier
	$(BIN)/pytest --stability -n 2 $(ARGS)

test: $(STAMP) ## run the tests of the code
	$(BIN)/pytest -n 2 $(ARGS)

lint: $(STAMP) ## check style, types and workflows; changes nothing
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/zizmor --offline .github/workflows ci
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml

format: $(STAMP) ## format the code and mend what ruff can mend
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

controls: $(STAMP) ## run the controls: does the suite see what it must see?
	$(BIN)/stabilitysuite controls $(ARGS)

readme: $(STAMP) ## run the README's example and put its output into the README
	$(BIN)/python docs/readme.py

statistics: $(STAMP) ## simulate the judge and put the tables into docs/statistics.md (ten minutes)
	$(BIN)/python -m benchmarks.statistics $(ARGS)

bench: $(STAMP) ## measure speed and memory and put the tables into docs/benchmarks.md (nine minutes)
	$(BIN)/python -m benchmarks $(ARGS)

bench-peers: $(PEERS)/.made ## the same training by Lightning and the HF Trainer (an environment of its own)
	$(PEERS)/bin/python -m benchmarks.peers $(ARGS)

gpu-check: $(STAMP) ## what only a card can show, as one JSON object (eight minutes); without one, what can be shown
	@$(BIN)/python -m benchmarks.gpu_check $(ARGS)

clean: ## remove .venv, .venv-peers, caches, builds and results
	rm -rf $(VENV) $(PEERS) build dist stability-results stability-junit.xml
	rm -rf .benchmarks .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# -qq: pip says only what stops it. The stamp is touched last, so a broken install is made again.
$(STAMP): pyproject.toml constraints.txt
	@echo "making $(VENV) from pyproject.toml and constraints.txt (a minute or more, once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# What pip takes is pinned by the same list, so that torch is the same build in both environments.
$(PEERS)/.made: pyproject.toml constraints.txt benchmarks/peers.txt
	@echo "making $(PEERS) from benchmarks/peers.txt and constraints.txt (some minutes, once)"
	@$(PYTHON) -m venv $(PEERS)
	@$(PEERS)/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e . -r benchmarks/peers.txt
	@touch $@
