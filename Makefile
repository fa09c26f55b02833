# A day needs four of these: make format check test docs. Each prepares what it needs, on a new machine too.

PYTHON ?= python3
ARGS ?=
VENV := .venv/bin

export PYTHON
# Debian keeps slurmctld and slurmd where an ordinary user's PATH does not look.
export PATH := $(PATH):/usr/local/sbin:/usr/sbin:/sbin
# mkdocs-material prints an announcement about another project into every build.
export NO_MKDOCS_2_WARNING := 1

.DEFAULT_GOAL := help
.PHONY: help setup venv demo test test-nvrx test-attrsvc test-matrix test-faults test-soak test-performance test-mutants format check docs fuzz bench screenshots clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: ## prepare this machine: Slurm (as root), .venv, the NVRx wheels
	@bash tests/setup.sh

venv:
	@bash tests/setup.sh venv

demo: ## see it work, in some seconds: a node goes bad on a private Slurm
	@bash tests/setup.sh || bash tests/setup.sh venv  # where Slurm cannot be had a recording is played
	@$(VENV)/segment-health demo

test: setup ## run every test; ARGS='-k name -x' goes to pytest
	$(VENV)/python -m pytest $(ARGS)

test-nvrx: setup ## run NVIDIA's ft_launcher against our publisher, on a real Slurm (1 GB of torch, 5 minutes)
	@bash tests/nvrx_setup.sh $(VENV)/python -m pytest --durations=0 tests/nvrx/test_ft_launcher.py $(ARGS)

test-attrsvc: venv ## have NVIDIA's attribution service judge crashed cycles for our client (50 MB, a minute)
	@bash tests/attrsvc_setup.sh $(VENV)/python -m pytest --durations=0 tests/nvrx/test_attrsvc.py tests/nvrx/test_attrsvc_managed.py $(ARGS)

test-matrix: ## run the tests of publishing on Slurm 22.05, 24.11 and 26.05, in chroots (as root, 10 minutes)
	@bash tests/matrix.sh $(ARGS)

test-mutants: venv ## break the product a line at a time, and see which test notices (10 minutes); ARGS='name'
	$(VENV)/python tests/mutants.py $(ARGS)

test-faults: setup ## break storage, processes, clocks and Slurm under a publisher, as root; ARGS=--short for 4 minutes
	$(VENV)/python -m tests.faults $(ARGS)

test-soak: setup ## kill a publisher at random on a large cluster that changes at random (as root); ARGS='--minutes 30'
	@$(VENV)/python -m tests.soak $(ARGS)

test-performance: setup ## hold ratios of a pass on a small simulated cluster to their limits (as root, a minute)
	@$(VENV)/python -m compileall -q segment_health slurm benchmarks
	@$(VENV)/python -m benchmarks.guard

format: venv ## rewrite the code as ruff wants it
	$(VENV)/ruff format
	$(VENV)/ruff check --fix

check: venv ## lint, format, types, imports: changes nothing
	$(VENV)/ruff check
	$(VENV)/ruff format --check
	$(VENV)/mypy
	$(VENV)/lint-imports --no-logo

docs: venv ## build the documentation into site/; a broken link is an error
	$(VENV)/mkdocs build --strict --quiet

fuzz: venv ## fuzz the parsers by coverage; ARGS='--seconds 60 nodes jobs' names them
	@$(VENV)/python -m pip -qq --disable-pip-version-check install --group fuzz
	@$(VENV)/python -m tests.fuzz.run_atheris $(ARGS)

bench: setup ## measure docs/performance.md on a large simulated cluster (as root, 15 minutes); ARGS=--short
	@$(VENV)/python -m pip -qq --disable-pip-version-check install --group bench
	@$(VENV)/python -m benchmarks $(ARGS)

screenshots: setup ## take the pictures of the status page in docs/images/ (Chromium)
	@$(VENV)/python benchmarks/screenshots.py $(ARGS)

clean: ## remove everything that these targets made
	rm -rf .venv .cache .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache dist site .coverage*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
