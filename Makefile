# Everything sets up .venv by itself; only python3 (3.11 or newer) is needed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8080

COMPILE := --quiet --upgrade --generate-hashes --no-emit-index-url --no-header --no-annotate --universal \
	--python-version 3.11

.PHONY: demo test conformance check bench docs constraints clean

# Holds one conversation with the offline demo model, then serves. `make demo ONCE=1` stops after it.
demo: $(VENV)/.core
	@NANOBOT_HOME=$${NANOBOT_HOME:-$$(mktemp -d)} PYTHON=$(abspath $(BIN)/python) PORT=$(PORT) \
		sh examples/quickstart/demo.sh $(if $(ONCE),once)

test: $(VENV)/.dev
	$(BIN)/pytest -n 2 --dist loadgroup

# The official conformance suite against us; Node.js comes from a Python package, the suite from npm.
conformance: $(VENV)/.node
	PATH=$(abspath $(BIN)):$$PATH $(BIN)/npm install --prefix tests/node --no-package-lock --no-audit --no-fund \
		--loglevel=error
	$(BIN)/python -m tests.conformance.run

check: $(VENV)/.dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check

docs: $(VENV)/.dev
	$(BIN)/python docs/generate.py

bench: $(VENV)/.dev
	$(BIN)/python bench/all.py

# Exact versions with their hashes; our own package last, without looking for anything more.
$(VENV)/.core: pyproject.toml constraints/core.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r constraints/core.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.core constraints/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r constraints/dev.txt
	@touch $@

$(VENV)/.node: $(VENV)/.dev constraints/node.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r constraints/node.txt
	@touch $@

# Needs uv. Refreshes the exact versions after a change of the ranges in pyproject.toml.
constraints:
	uv pip compile $(COMPILE) --group build pyproject.toml -o constraints/core.txt
	uv pip compile $(COMPILE) --group build --group dev pyproject.toml -o constraints/dev.txt
	uv pip compile $(COMPILE) --group node -o constraints/node.txt

clean:
	rm -rf $(VENV) artifacts .pytest_cache .ruff_cache .hypothesis .import_linter_cache
