# Everything runs in .venv, which the first target that needs it makes.
# ARGS is handed on:  make test ARGS="-k quantity -x"

PYTHON ?= python3
ARGS   ?=

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.made

.DEFAULT_GOAL := help
.PHONY: help stability test lint format controls readme clean

help: ## say what the targets do
	@sed -n -E 's/^([a-z]+):[^#]*## (.*)$$/\1|\2/p' Makefile | \
		while IFS='|' read -r name text; do printf '  make %-10s %s\n' "$$name" "$$text"; done

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

clean: ## remove .venv, caches, builds and results
	rm -rf $(VENV) build dist stability-results stability-junit.xml
	rm -rf .benchmarks .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# -qq: pip says only what stops it. The stamp is touched last, so a broken install is made again.
$(STAMP): pyproject.toml constraints.txt
	@echo "making $(VENV) from pyproject.toml and constraints.txt (a minute or more, once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
