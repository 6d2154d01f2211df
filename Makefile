# Each target makes .venv by itself when it is missing or when the pins changed. Needs Python 3.11 and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2

.PHONY: install test lint format types demo paper paper-quick clean

install: $(STAMP)

$(STAMP): constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Thresher needs Python 3.11 or later; say PYTHON=/path/to/python" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,onnx,peers]'
	@touch $@
	@echo "Installed. The command is $(BIN)/thresher"

# numba's threads and torch's would fight over the cores the test workers already use.
test: lint types
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=2 $(BIN)/python -m pytest -n $(WORKERS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: $(STAMP)
	$(BIN)/thresher demo

# The paper's tables and figures and docs/reproducing_the_paper.md; resumable. Raw data: THRESHER_DATA_DIR.
paper: $(STAMP)
	$(BIN)/python benchmarks/paper/make.py

# A small version of all of it, in minutes, in benchmarks/temporary/paper-quick/; on made-up rows where there is no data.
paper-quick: $(STAMP)
	$(BIN)/python benchmarks/paper/make.py --quick

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
