# Chores of the house. `make help` lists them. Everything lives in $(VENV); pip takes its own settings
# from the environment, and constraints.txt names the versions that were tested.
#
#   make demo                               install, then run the demonstration
#   make PYTHON=python3.13 VENV=.venv313 test    another Python beside the first

PYTHON ?= python3
VENV ?= .venv
override BIN := $(VENV)/bin
override INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
override PACKAGE := src/scalemix
override SOURCES := src tests docs/conf.py docs/make_figures.py
override PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

.PHONY: demo test test-all lint format docs constraints clean help

demo: $(VENV)/.with-nothing ## install, fit embedded data, write demo/report.html
	$(BIN)/scalemix demo --out demo

test: $(VENV)/.with-test ## the tests, without the slow ones
	$(PYTEST)

test-all: $(VENV)/.with-test ## every test
	$(PYTEST) -m ""

lint: $(VENV)/.with-lint ## ruff (rules and format) and mypy
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy

format: $(VENV)/.with-lint ## let ruff mend and lay out the code
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

docs: $(VENV)/.with-docs ## docs/*.md as pages in docs/_build/html; a warning is an error
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -d docs/_build/doctrees docs docs/_build/html
	@echo "docs/_build/html/index.html"

constraints: $(VENV)/.made ## compile constraints.txt anew, with the newest versions
	@echo "Compiling constraints.txt for every supported Python ..."
	@$(INSTALL) uv
	$(BIN)/uv pip compile pyproject.toml --quiet --no-config --no-python-downloads --upgrade --universal \
		--python-version 3.11 --all-extras --no-annotate \
		--custom-compile-command "make constraints" --output-file constraints.txt

clean: ## remove what these targets made, the environment too
	rm -rf "$(VENV)" build dist demo docs/_build .pytest_cache .mypy_cache .ruff_cache
	find src tests docs -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 20

# One stamp for the environment, one for each set of extras that was installed into it.

$(VENV)/.made:
	@command -v "$(PYTHON)" >/dev/null || { echo "There is no '$(PYTHON)' here: install Python 3.11 or newer, or name one: make PYTHON=python3.13" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "scalemix needs Python 3.11 or newer and '$(PYTHON)' is $$("$(PYTHON)" --version 2>&1): name a newer one, as in make PYTHON=python3.13" >&2; exit 1; }
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || { \
		version=$$("$(PYTHON)" -c 'import sys; print("python%d.%d" % sys.version_info[:2])'); \
		echo "'$(PYTHON)' lacks its venv module: install the Debian package python3-venv (for this one: $$version-venv), then run make again" >&2; exit 1; }
	@echo "Making a Python environment in $(VENV) ..."
	@"$(PYTHON)" -m venv "$(VENV)"
	@touch $@

$(VENV)/.with-nothing: $(VENV)/.made pyproject.toml constraints.txt
	@echo "Installing scalemix into $(VENV), with the versions of constraints.txt (a minute or two the first time) ..."
	@$(INSTALL) -c constraints.txt -e .
	@touch $@

$(VENV)/.with-%: $(VENV)/.made pyproject.toml constraints.txt
	@echo "Installing scalemix and what '$*' needs into $(VENV), with the versions of constraints.txt (a minute or two the first time) ..."
	@$(INSTALL) -c constraints.txt -e '.[$*]'
	@touch $@
