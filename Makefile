# Everything a developer or a first-time user needs; `make help` lists it.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
BIN := .venv/bin

PATIENCE := $(or $(OFFSETSTREAM_TEST_PATIENCE),1)
# A test that waits for ever says where, and ends.
PARALLEL := --numprocesses 2 --no-loadscope-reorder --instafail \
	-o faulthandler_timeout=$(shell awk 'BEGIN { print 600 * $(PATIENCE) }')

.DEFAULT_GOAL := help
.PHONY: help install demo test test-long test-nightly test-floors test-versions check unit coverage lock audit format docs site bench mutants crash-matrix chaos trino clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

install: ## Make the environment in .venv
	@test -n "$(PYTHON)" || { echo "offsetstream: there is no Python: install 3.11, 3.12 or 3.13" >&2; exit 1; }
	@$(PYTHON) scripts/install.py

demo: install ## Run the job on an embedded, real Kafka with real clients
	@$(BIN)/offsetstream demo

test: check ## Run the checks, and every test that must hold at each change (twelve minutes)
	@$(BIN)/pytest -m "not long and not nightly" $(PARALLEL) --durations 25

test-long: install ## Run the tests that are long by nature (an hour)
	@$(BIN)/pytest -m "long and not nightly" $(PARALLEL) --durations 25

test-nightly: crash-matrix ## Run what takes hours: the crash matrix, chaos of both kinds, S3, other versions of packages
	@$(BIN)/pytest -m nightly -o faulthandler_timeout=3600
	@OFFSETSTREAM_TEST_EXAMPLES=20 $(BIN)/pytest tests/unit/codec tests/unit/coordinator
	@$(BIN)/python -m tests.reliability.s3_commits
	@$(BIN)/python -m tests.reliability.legs
	@$(BIN)/python -m tests.reliability.chaos --minutes 30
	@$(BIN)/python -m tests.reliability.chaos --minutes 30 --compaction

test-floors: install ## Run the unit tier and one whole job with the oldest packages that pyproject.toml allows, and Databricks 17.3's
	@$(BIN)/python -m tests.reliability.legs lowest databricks-17.3

test-versions: install ## Run the tests with Python 3.12 and 3.13, and the job with PySpark 4.1 on Java 17 and 4.2 on Java 25
	@$(BIN)/python -m tests.reliability.legs python-3.12 python-3.13 pyspark-4.1-java-17 pyspark-4.2-java-25

check: install ## Run the checks alone: lint, format, types, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

unit: install ## Run the tests that need no JVM (three minutes)
	@$(BIN)/pytest tests/unit -m "not long and not nightly" $(PARALLEL)

coverage: install ## Run the tests of a tier (TIER='not long and not nightly'), and show which lines and branches they leave out
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest -m "$(or $(TIER),not long and not nightly)" $(PARALLEL) --quiet
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report

format: install ## Format the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

lock: install ## Write requirements.lock anew from pyproject.toml
	@$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --upgrade --quiet --output-file requirements.lock

audit: install ## Ask whether a locked version, or a jar that we run or ship, is known to be vulnerable (1: yes, 3: nobody could be asked)
	@$(BIN)/python scripts/audit.py

docs: install ## Write the dashboards, and what documents have of commands, tables, views and metrics, anew
	@$(BIN)/python scripts/commands_doc.py
	@$(BIN)/python scripts/tables_doc.py
	@$(BIN)/python scripts/views_doc.py
	@$(BIN)/python scripts/metrics_doc.py
	@$(BIN)/python scripts/dashboards.py

site: install ## Build the documents as a site, into build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

bench: install ## Measure everything beside its peers, and write docs/explanation/benchmarks.md
	@$(BIN)/python -m benchmarks --save

mutants: install ## Write small faults into copies of HEAD, and see which test of `make test` catches each
	@$(BIN)/python -m tests.mutants

crash-matrix: install ## Kill the job at every file that it makes, and start it again (hours; SAMPLE=5 for a part, SAMPLING=1 with samples)
	@$(BIN)/python -m tests.reliability.crash_matrix $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SAMPLING),--sampling)

chaos: install ## Kill brokers and the job at random for MINUTES (30; COMPACTION=1: another weather), and compare
	@$(BIN)/python -m tests.reliability.chaos $(if $(MINUTES),--minutes $(MINUTES)) $(if $(COMPACTION),--compaction)

trino: install ## Read every table by Trino, as make test-nightly does (a gigabyte the first time)
	@$(BIN)/pytest -m nightly tests/doors/test_trino.py

clean: ## Remove the environment and what tests and checks left
	@rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
