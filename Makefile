# `make demo` and `make test` need nothing but python3 >= 3.10: each makes .venv, installs everything, then runs.
#
#   make demo ARGS="--quick --seed 1"    options of `cirl demo`
#   make test PYTHON=python3.12          another interpreter (run `make clean` first to change an existing .venv)
#   make demo TORCH="torch==2.13.0 --index-url URL"    another source of PyTorch, e.g. an index of CPU-only wheels

PYTHON ?= python3
TORCH ?= torch==2.13.0
ARGS ?=

BIN := .venv/bin
STAMP := .venv/.installed
PYTEST := $(BIN)/python -m pytest -n 2
# tianshou_drqn.py needs a library that cannot stand beside this package: tests/compat/examples.sh runs it.
BENCHMARKS := $(filter-out benchmarks/tianshou_drqn.py,$(wildcard benchmarks/*.py))

.DEFAULT_GOAL := help
.PHONY: help install demo test test-slow test-kernels lint type docs bench clean

help:
	@echo "make demo       simulate experts, learn what they traded off, compare with the truth"
	@echo "make test       the test suite; make test-slow: the long experiments"
	@echo "make test-kernels    the suite as on a processor without AVX-512, then as on one without AVX2"
	@echo "make lint type  ruff and mypy"
	@echo "make docs       the documentation as a site, docs/_build/index.html"
	@echo "make bench      the scripts in benchmarks/"
	@echo "make install    only fill .venv; make clean: remove it and every cache"

install: $(STAMP)

# PyTorch goes first, so that it is the stated build: what depends on it would fetch the newest one with all of CUDA.
$(STAMP): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) not found; install Python 3.10 or newer, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "error: $$($(PYTHON) --version 2>&1) is too old; Python 3.10 or newer is needed: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "error: '$(PYTHON) -m venv' failed; its module may be a package of its own (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@echo "Installing into .venv, once; this takes a few minutes."
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

# One thread: small recurrent networks are slower with more, and results stay the same to the byte.
demo test test-slow test-kernels: export OMP_NUM_THREADS = 1

demo: install
	$(BIN)/cirl demo $(ARGS)

test: install
	$(PYTEST)

test-slow: install
	$(BIN)/python -m pip install --quiet --editable '.[dev,examples]'
	$(PYTEST) -m slow

# What a sum of floats comes to depends on the processor; tests must hold on any. NumPy refuses to switch off what it
# was not built for, so it is asked what it has.
SIMD = $$($(BIN)/python -c "import numpy; found = numpy.show_config('dicts')['SIMD Extensions']['found']; print(*(f for f in found if $(1)))")

test-kernels: install
	OPENBLAS_CORETYPE=Haswell ATEN_CPU_CAPABILITY=avx2 NPY_DISABLE_CPU_FEATURES="$(call SIMD,'512' in f or f == 'X86_V4')" $(PYTEST)
	OPENBLAS_CORETYPE=Nehalem ATEN_CPU_CAPABILITY=default NPY_DISABLE_CPU_FEATURES="$(call SIMD,True)" $(PYTEST)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: install
	$(BIN)/mypy

# A warning is an error: a page or name that is not found, a docstring that cannot be read. Built anew each time: a page
# that is left from a build before is not read again, and says nothing of a name that now stands twice.
docs: install
	rm -rf docs/_build docs/_generated
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet docs docs/_build

bench: install
	@set -e; for script in $(BENCHMARKS); do echo "== $$script"; $(BIN)/python "$$script"; done

clean:
	rm -rf .venv build dist docs/_build docs/_generated *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
