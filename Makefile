# `make` or `make help` lists the targets. Requirements: Python >= 3.11, pip, make.
# Everything is installed under .venv and .tools of this folder.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && command -v "$$p" && break; done)
ARGS ?=

# Recipes name the environment's programs: python, buf, pytest, ruff.
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export UV_PYTHON_DOWNLOADS := never
unexport VIRTUAL_ENV
# Without bytecode files, each of the hundreds of processes that tests start would compile the package and all libraries: over a second.
unexport PYTHONDONTWRITEBYTECODE

# The folder of packages and of the bill of materials.
DIST ?= dist

ENV := .venv/.made
UV := .tools/uv/bin/uv

# No target is a file.
.PHONY: $(shell sed -nE 's/^([a-z-]+):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## list the targets
	@awk -F ':.*## ' '/^# -+ / {sub(/^# -+ /, "\n"); print} /^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ---------------------------------------------------------------- environment

env: $(ENV) ## create or update .venv from uv.lock, and third_party/googleapis for buf

$(UV):
	@test -n "$(PYTHON)" || { echo "make: no Python >= 3.11 found; pass one: PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -m venv .tools/uv && .tools/uv/bin/pip install -qq --disable-pip-version-check --require-hashes -r tools/uv.txt

$(ENV): pyproject.toml uv.lock tools/make_env.sh | $(UV)
	@tools/make_env.sh "$(PYTHON)" $(UV) .venv && touch $@

lock: | $(UV) ## resolve the dependencies into uv.lock (UPGRADE=1 takes the newest versions)
	$(UV) lock --default-index https://pypi.org/simple $(if $(UPGRADE),--upgrade)
	$(UV) export --quiet --frozen --only-group uv --no-header --no-annotate -o tools/uv.txt

# ---------------------------------------------------------------- use

serve: $(ENV) ## run the server (ARGS="examples/csv_profile.py --http 127.0.0.1:9000")
	@dragoman serve $(ARGS)

cluster: $(ENV) ## run PostgreSQL, NATS, two servers, two workers and clients on this machine, to kill parts of it (ARGS=--help)
	@GRPC_ENABLE_FORK_SUPPORT=false python -m tools.cluster $(ARGS)

# ---------------------------------------------------------------- tests

# Test files are grouped by the marker at their beginning (pyproject.toml); `make test` runs those without one. With
# `--dist worksteal` most files stay at one worker, so that what a module starts or builds is not made twice.

test: $(ENV) ## run the tests of core and adapters as without extras, except long and browser tests (ARGS="-k name")
	@PYTHONPATH=$(CURDIR)/tests/without_extras python -m pytest -n 2 --groups short $(ARGS)

test-lowest: $(ENV) ## run the tests of `make test` with the lowest versions of every dependency (ARGS="-k name")
	@tools/lowest_env.sh .venv/bin/python $(UV) .tools/lowest
	@# The generators of protos want newer libraries, and are no part of a server.
	@PYTHONPATH=$(CURDIR)/tests/without_extras .tools/lowest/env/bin/python -m pytest -n 2 --groups short \
		--deselect tests/docs/test_recipes.py::test_a_field_of_a_task_is_added_in_six_places $(ARGS)

test-pythons: $(ENV) ## run the tests of `make test`, and those of the extras, on every CPython >= 3.11 here (PYTHONS="3.12 3.13")
	@python -m tools.pythons $(ARGS)

access: $(ENV) ## write docs/reference/access.md, the table of permissions, from the server's own tables
	@python -m tests.access.write

protocol-pages: $(ENV) ## write the generated pages of docs/reference/protocol: errors, and message shapes of every version
	@python -m tests.docs.errors_page
	@python -m tests.docs.shapes_page

long: $(ENV) ## run the long tests
	@python -m pytest -n 3 --durations=12 --groups long $(ARGS)

longest: $(ENV) ## run the longest tests: abuse, overload, upgrades, executors, many workers, PostgreSQL behind a pooler
	@python -m pytest -n 2 --dist worksteal --groups longest $(ARGS)

upgrade: $(ENV) ## test upgrades from the last release, to a future schema and back, under load, on both stores (FROM=a tag or wheel)
	@$(if $(FROM),UPGRADE_FROM=$(FROM)) python -m pytest tests/cli/serve/test_upgrade.py $(ARGS)

coverage: $(ENV) ## run the tests of test and long, with all extras, with line coverage; fails below the threshold
	@python -m pytest -n 2 --dist worksteal --cov --cov-report=term --groups short,long

# ---------------------------------------------------------------- tests: fuzzing

fuzz: $(ENV) ## send generated requests to a server, and run property tests with more examples (FUZZ_SECONDS=60 FUZZ_SEED=...)
	@python -m tests.fuzz.run

fuzz-parsers: $(ENV) ## run a coverage-guided fuzzer on every parser (FUZZ_SECONDS=60 for each, FUZZ_PARSERS=json,url selects)
	@python -m tests.fuzz.run_parsers

fuzz-remote: $(ENV) ## send mutated cards, answers and events of remote servers to everything that reads them (REMOTE_INPUTS=100000)
	@python -m tests.fuzz.remote.run

# ---------------------------------------------------------------- tests: kills, histories and time

chaos: $(ENV) ## kill and freeze a server under load, and check what every client received (CHAOS_SECONDS=120 CHAOS_SEED=...)
	@python -m tests.chaos.run
	@SOAK_SECONDS=$${SOAK_SECONDS:-30} python -m tests.chaos.soak

simulate: $(ENV) ## play histories of the real runtime on simulated time, and check each (SEED=... HISTORIES=1000)
	@python -m tests.simulation.run $(if $(SEED),--seed "$(SEED)") $(if $(HISTORIES),--histories $(HISTORIES))

mutations: $(ENV) ## plant faults into the runtime, and check that the simulation finds each
	@python -m tests.simulation.mutations

chaos-cluster: $(ENV) ## run chaos with three servers, two workers, PostgreSQL and NATS, all killed and frozen
	@python -m tests.chaos.run --replicas

chaos-chains: $(ENV) ## run chaos with three servers in a chain and an MCP server, all killed, frozen and cut off
	@python -m tests.chaos.chains.run

campaign: $(ENV) ## many chaos runs that add up in docs/reference/campaign.md (CAMPAIGN_MINUTES=60, ARGS=--page or --whole)
	@GRPC_ENABLE_FORK_SUPPORT=false python -m tests.chaos.campaign.run $(ARGS)

endurance: $(ENV) ## run ten-minute tasks through `dragoman flaky` over every binding; no event may be lost or repeated (ENDURANCE_SECONDS=600)
	@python -m tests.endurance.run

soak: $(ENV) ## run steady load for an hour and check that memory, files and handles stay constant (SOAK_SECONDS=3600)
	@python -m tests.chaos.soak

# ---------------------------------------------------------------- tests: other clients and gateways

foreign: $(ENV) ## run the published clients against the server, each in its own environment
	@python -m tests.foreign.run $(ARGS)

foreign-all: $(ENV) ## the same with every check of the Go, Rust and Java SDKs; writes docs/reference/clients.md
	@python -m tests.foreign.run --all $(ARGS)

foreign-cluster: $(ENV) ## run the published clients against three servers behind a round-robin proxy
	@python -m tests.foreign.run --replicated $(ARGS)

gateway: $(ENV) ## compare our transcoder with grpc-gateway and Envoy; writes docs/reference/gateways.md (GATEWAY_CASES=2000)
	@python -m tests.transcoders.run

# ---------------------------------------------------------------- benchmarks

bench: $(ENV) ## measure the bare transports, other servers and this one, side by side (ARGS="--only grpc-send --rounds 3", --help)
	@python -m bench $(ARGS)

bench-smoke: $(ENV) ## run the benchmarks in short form and check that all servers respond correctly
	@BENCH_SHORT=1 python -m bench $(ARGS)
	@BENCH_SHORT=1 python -m bench --ladder

profile: $(ENV) ## write a CPU profile of sends (ARGS="--binding jsonrpc --callers 64")
	@python -m bench.studies.profile $(ARGS)

# ---------------------------------------------------------------- console

NODE_MODULES := console/node_modules/.made

$(NODE_MODULES): console/package.json console/package-lock.json
	@command -v npm >/dev/null || { echo "make: building the console needs Node.js 20 or newer, and npm is not installed" >&2; exit 1; }
	@cd console && npm ci --silent --no-audit --no-fund && touch node_modules/.made

console: $(NODE_MODULES) ## build the console from console/ into the package, where it is committed
	@cd console && npm run --silent check && npm run --silent build

console-check: ## check that the committed console matches console/ (skipped without npm, unless NPM=required)
	@if [ "$(NPM)" = required ] || command -v npm >/dev/null; then tools/check_console.sh; else echo "console-check: not compared (no npm)"; fi

chromium:
	@python -m tests.console.chromium

browser: $(ENV) chromium ## test the console in a headless Chromium against the real server (CHROMIUM=/path/to/chromium)
	@python -m pytest -n 2 --groups browser $(ARGS)

screenshots: $(ENV) chromium ## take the console's screenshots for docs/ and the README
	@python -m tests.console.screenshots

# ---------------------------------------------------------------- documentation

DOCS := .tools/docs/bin
# MkDocs prints a warning about its next major version.
MKDOCS = NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(DOCS)/mkdocs

docs: $(ENV) $(DOCS)/.made ## build the documentation site in site/; broken links fail
	@set -o pipefail; $(MKDOCS) build $(ARGS) 2>&1 | sed "/^INFO/d"
	@echo "docs: site/index.html"

docs-serve: $(ENV) $(DOCS)/.made ## serve the documentation site at http://127.0.0.1:8000 and rebuild it on changes
	@$(MKDOCS) serve --livereload $(ARGS)

sessions: $(ENV) ## run the commands of every documentation page, top to bottom, on real servers
	@python -m pytest -n 3 --groups sessions $(ARGS)

docs-test: $(ENV) ## run the commands of documentation pages and print a table of all code blocks (ARGS="docs/how-to/push.md" selects)
	@python -m tests.docs $(ARGS)

settings: $(ENV) ## write docs/reference/settings.md from the options of `dragoman serve`, the commands of cli.md, and schema.md
	@python -m tools.settings_page
	@python -m tools.schema_page
	@python -m tests.docs.commands_page

$(DOCS)/.made: uv.lock tools/tool_env.sh | $(UV)
	@tools/tool_env.sh "$(PYTHON)" $(UV) docs --only-group docs && touch $@

# ---------------------------------------------------------------- checks

check: format-check lint types layers proto-check console-check ## run all checks except the tests

format: $(ENV) ## format Python and proto sources
	@ruff format . && ruff check --fix-only --quiet . && buf format proto -w

format-check: $(ENV) ## check the format of Python sources
	@ruff format --check .

lint: $(ENV) ## run ruff, and reject retired words in names (tools/retired_words.toml)
	@ruff check .
	@python -m tools.retired_words

types: $(ENV) ## run mypy in strict mode, and once more on the server as on macOS
	@mypy
	@mypy --platform darwin --cache-dir .mypy_cache/darwin server

layers: $(ENV) ## check that every layer imports only the layers below it
	@python -m pytest -q tests/test_layers.py

# ---------------------------------------------------------------- release

scorecard: $(ENV) ## write docs/reference/scorecard.md from recorded results: clients, chaos, benchmarks, limits
	@python -m tools.scorecard

release: $(ENV) ## make a release in dist/VERSION (VERSION=0.2.0); see docs/how-to/releasing.md
	@python -m tools.release $(VERSION)

release-test: $(ENV) ## install the artifacts of DIST in new environments and use them (DIST=dist/0.2.0)
	@RELEASE_DIST=$(abspath $(DIST)) python -m pytest -n 2 tests/supply/test_installed.py tests/supply/test_index.py $(ARGS)

# ---------------------------------------------------------------- supply chain

SUPPLY := .tools/supply/bin

supply: wheel-check sbom ## run all supply-chain checks; continues if no advisory service can be reached
	@$(MAKE) --no-print-directory $(SUPPLY)/.made
	@$(SUPPLY)/python tools/audit_deps.py $(if $(OSV),--osv $(OSV)) || [ $$? = 3 ]

audit-deps: $(SUPPLY)/.made ## list known vulnerabilities of the packages in uv.lock (OSV=all.zip uses an OSV export, without network)
	@$(SUPPLY)/python tools/audit_deps.py $(if $(OSV),--osv $(OSV))

sbom: $(SUPPLY)/.made .tools/runtime/bin/.made ## write dist/dragoman.cdx.json: the software bill of materials of an installation with all extras (CycloneDX)
	@tools/make_sbom.sh $(SUPPLY)/cyclonedx-py .tools/runtime $(DIST)/dragoman.cdx.json

sbom-check: $(SUPPLY)/.made .tools/runtime/bin/.made ## write the bill of materials twice and compare the bytes
	@tools/make_sbom.sh $(SUPPLY)/cyclonedx-py .tools/runtime $(DIST)/dragoman.cdx.json twice

wheel-check: $(ENV) ## build twice in two folders and compare the bytes; leaves the builds in dist/
	@tools/check_wheel.sh .venv/bin/python $(DIST)

site-check: $(ENV) $(DOCS)/.made ## build the site twice in two folders and compare the bytes; leaves it in dist/site
	@$(if $(RELEASE_EPOCH),SOURCE_DATE_EPOCH=$(RELEASE_EPOCH)) tools/check_site.sh $(DOCS)/mkdocs $(DIST)/site

$(SUPPLY)/.made: uv.lock tools/tool_env.sh | $(UV)
	@tools/tool_env.sh "$(PYTHON)" $(UV) supply --only-group supply && touch $@

.tools/runtime/bin/.made: uv.lock tools/tool_env.sh | $(UV)
	@tools/tool_env.sh "$(PYTHON)" $(UV) runtime --no-dev --all-extras && touch $@

deploy-check: $(ENV) ## lint and render Dockerfile, compose file and Helm chart, and validate them against the API schemas
	@python -m tools.check_deploy

# ---------------------------------------------------------------- protos

googleapis: $(ENV)
	@python tools/sync_googleapis.py

proto: googleapis ## regenerate gen/dragoman_pb and gen/dragoman.binpb from proto/
	@buf generate
	@buf build proto -o gen/dragoman.binpb

proto-check: googleapis ## check the protos: lint, format, breaking changes, and that gen/ is up to date
	@tools/check_protos.sh

baseline: googleapis ## record the protos that later versions are compared with; only at a release
	@buf build proto --exclude-source-info -o proto/baseline.binpb

openapi: googleapis ## regenerate gen/openapi (OpenAPI 2 and 3.1); needs Go
	@command -v go >/dev/null || { echo "make openapi: Go is not installed; gen/openapi is unchanged" >&2; exit 1; }
	@buf generate --template buf.gen.openapi.yaml
	@python -m tools.openapi write gen/openapi

clean: ## remove everything that make created
	rm -rf .venv .tools .foreign .bench .chaos .fuzz site console/node_modules dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage htmlcov
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
