# Each target makes .venv by itself when it is missing or when the pins changed. Needs Python 3.11 and make, nothing else.
# Without a GPU on Linux: make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu (the torch of PyPI brings CUDA).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
LIBRARY := $(VENV)/.installed
DEVELOPMENT := $(VENV)/.installed-for-development
TORCHREC := $(VENV)/.installed-torchrec
WORKERS ?= 2

.PHONY: install torchrec test lint format types demo docs docs-serve paper paper-quick clean fuzz crash

install: $(DEVELOPMENT)

# Thresher alone, with what it needs to run.
$(LIBRARY): constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Thresher needs Python 3.11 or later. Use PYTHON=/path/to/python" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(if $(TORCH_INDEX),$(PIP) torch --index-url $(TORCH_INDEX))
	$(PIP) -e .
	@touch $@
	@echo "Installed. The command is $(BIN)/thresher"

# The tools of the tests, ONNX, and the libraries of other projects that the tests and examples use.
$(DEVELOPMENT): $(LIBRARY)
	$(PIP) -e '.[dev,docs,onnx,peers,serve]'
	@touch $@

# TorchRec and FBGEMM for CPUs (45 MB), for thresher.integrations.torchrec and its tests, which are skipped without them.
torchrec: $(TORCHREC)

$(TORCHREC): requirements-torchrec.txt $(DEVELOPMENT)
	$(PIP) --no-deps -r requirements-torchrec.txt
	@touch $@

# numba's threads and torch's would fight over the cores the test workers already use.
test: lint types
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=2 $(BIN)/python -m pytest -n $(WORKERS)

lint: $(DEVELOPMENT)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEVELOPMENT)
	$(BIN)/mypy

format: $(DEVELOPMENT)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The documentation site in build/site, its links checked; `make test` builds it as well.
docs: $(DEVELOPMENT)
	$(BIN)/python docs/make_site.py

docs-serve: $(DEVELOPMENT)
	$(BIN)/python docs/make_site.py --serve

demo: $(LIBRARY)
	$(BIN)/thresher demo

# The paper's tables and figures and docs/reproducing_the_paper.md; resumable. Raw data: THRESHER_DATA_DIR.
paper: $(DEVELOPMENT)
	$(BIN)/python benchmarks/paper/make.py

# A small version of all of it, in minutes, in benchmarks/temporary/paper-quick/; on made-up rows where there is no data.
paper-quick: $(DEVELOPMENT)
	$(BIN)/python benchmarks/paper/make.py --quick

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Mutates files of every kind of artefact and loads them; exit code 1 if one is accepted with other content or ends in a
# raw exception, an abort, more than 5 seconds or too much memory. With OUT=file a second call goes on.
fuzz: $(DEVELOPMENT)
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m fuzz.campaign $(or $(TIME),60) $(if $(SEED),--seed $(SEED)) $(if $(OUT),--out $(OUT))

# Kills and power failures of prune, compare, encode, export and serve; exit code 1 if a resumed task ends with other
# files. TIME is the limit for the recorded states in seconds; 300 processes are killed after that. With WORK=folder and
# OUT=file a second call goes on with the states that were not tried.
crash: $(DEVELOPMENT)
	PYTHONPATH=tests OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python -m crash.campaign $(or $(TIME),600) $(if $(SEED),--seed $(SEED)) $(if $(OUT),--out $(OUT)) $(if $(WORK),--work $(WORK))
