# Everything a newcomer needs: `make test`, `make run`. Each sets up .venv by itself, once.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: test test-all run check format clean help

help:            ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $(STAMP)

check: $(STAMP)  ## format, lint, import order of the layers, strict types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

test: check      ## everything that must hold, in under ten minutes on two cores
	$(BIN)/python -m pytest -n 2 -q -m "not slow"

test-all: check  ## the slow ones too
	$(BIN)/python -m pytest -n 2 -q

run: $(STAMP)    ## the main job: train on real digits as FedAvg, ERIS and ERIS+DSC, side by side
	$(BIN)/eris run

format: $(STAMP) ## let ruff arrange the files
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:           ## forget .venv and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
