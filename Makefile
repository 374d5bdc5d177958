# Everything a newcomer needs: `make test`, `make run`. Each sets up .venv by itself, once.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: test test-all test-stories docs run check format wheel lock notice advisories clean help

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

test-stories: $(STAMP) ## what people are told to do, done: pages, notebooks, monitoring; in under twenty minutes
	$(BIN)/python -m pytest -q -n 2 -m story

docs: $(STAMP)   ## the documentation site, in site/: strict, and without a network
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

run: $(STAMP)    ## the main job: train on real digits as FedAvg, ERIS, ERIS+DSC and masked, side by side
	$(BIN)/eris run

format: $(STAMP) ## let ruff arrange the files
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

wheel: $(STAMP)  ## dist/: the wheel, and its bill of materials (CycloneDX)
	$(BIN)/python -m build --wheel --no-isolation .
	$(BIN)/python release/sbom.py

lock: $(STAMP)   ## requirements.lock from constraints.txt: the same pins, with hashes
	$(BIN)/python release/lock.py

notice: $(STAMP) ## NOTICE from the metadata of what is installed
	$(BIN)/python release/notice.py

advisories: $(STAMP) ## ask a public database about everything that is pinned (needs a network)
	$(BIN)/python release/advisories.py

clean:           ## forget .venv and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis site dist
