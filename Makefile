# `make` or `make help` lists the targets.  Needed beforehand: Python >= 3.11, pip, make; nothing else.
# Everything is installed under .venv and .tools of this folder.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && command -v "$$p" && break; done)
ARGS ?=

# buf starts its plugin as plain `python3`: that has to be the environment's.
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export UV_PYTHON_DOWNLOADS := never
unexport VIRTUAL_ENV
# Without compiled files each of the hundreds of processes that tests start compiles us and all libraries anew: over a second.
unexport PYTHONDONTWRITEBYTECODE

ENV := .venv/.made
UV := .tools/uv/bin/uv

# No target is a file.
.PHONY: $(shell sed -nE 's/^([a-z-]+):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

# ---------------------------------------------------------------- environment

env: $(ENV) ## make or refresh .venv from uv.lock

$(UV):
	@test -n "$(PYTHON)" || { echo "make: no Python >= 3.11 found; name one with PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -m venv .tools/uv && .tools/uv/bin/pip install -qq --disable-pip-version-check --require-hashes -r tools/uv.txt

$(ENV): pyproject.toml uv.lock tools/make_env.sh | $(UV)
	@tools/make_env.sh "$(PYTHON)" $(UV) && touch $@

lock: | $(UV) ## resolve the dependencies again into uv.lock (UPGRADE=1 takes the newest)
	$(UV) lock --default-index https://pypi.org/simple $(if $(UPGRADE),--upgrade)
	$(UV) export --quiet --frozen --only-group uv --no-header --no-annotate -o tools/uv.txt

# ---------------------------------------------------------------- use

serve: $(ENV) ## run the server (ARGS="examples/csv_profile.py --http 127.0.0.1:9000")
	@dragoman serve $(ARGS)

cluster: $(ENV) ## PostgreSQL, NATS, two servers, two workers and callers on this machine; kill what you like (ARGS=--help)
	@GRPC_ENABLE_FORK_SUPPORT=false python -m tools.cluster $(ARGS)

# ---------------------------------------------------------------- tests

# Tests that take long: whole matrices on real servers, killed processes, Node or a browser. `make test` leaves them to
# `make long`, to stay well under three minutes.
LONG = \
	tests/bus/test_nats.py \
	tests/cli/serve/test_encrypted.py \
	tests/cli/admin/test_keys.py \
	tests/cli/serve/test_postgres.py \
	tests/cli/admin/test_push.py \
	tests/cli/serve/test_replicas.py \
	tests/cli/serve/test_rolling.py \
	tests/cli/serve/test_serve.py \
	tests/cli/admin/test_signing.py \
	tests/cli/test_tasks.py \
	tests/client/test_sync_processes.py \
	tests/dialects/test_pairs.py \
	tests/runtime/test_nats.py \
	tests/runtime/test_postgres.py \
	tests/runtime/test_postgres_outage.py \
	tests/stores/postgres/test_store.py \
	tests/stores/postgres/test_failures.py \
	tests/stores/postgres/test_open_store.py \
	tests/stores/postgres/test_concurrency.py \
	tests/stores/sqlite/test_next_schema.py \
	tests/isolation \
	tests/test_push_crash.py \
	tests/test_subscribers.py \
	tests/agents/upstream \
	tests/agents/workers

# Tests that take longest: abuse, overload, upgrades, executors, storms of workers. CI runs them as a step of their own.
LONGEST = \
	tests/abuse \
	tests/cli/test_completion.py \
	tests/cli/serve/test_nats.py \
	tests/cli/serve/test_upgrade.py \
	tests/cli/admin/test_maintenance.py \
	tests/cli/test_worker.py \
	tests/examples/test_webhook_receiver.py \
	tests/examples/test_worker_node.py \
	tests/agents/executors/test_executors.py \
	tests/one_port \
	tests/overload \
	tests/endurance \
	tests/stores/postgres/test_next_schema.py \
	tests/stores/postgres/test_state_machine.py \
	tests/stores/postgres/test_pooler.py \
	tests/stubs \
	tests/supply/test_installed.py \
	tests/test_make_cluster.py \
	tests/testing/test_contracts.py \
	tests/agents/upstream/test_crash.py \
	tests/agents/workers/test_crash.py \
	tests/agents/workers/test_churn.py

test: $(ENV) ## the tests, without the long ones and the browser's (ARGS="-k name" selects)
	@python -m pytest -n 2 $(patsubst %,--ignore=%,$(LONG) $(LONGEST)) --ignore=tests/console --ignore=tests/docs/test_sessions.py $(ARGS)

access: $(ENV) ## write docs/reference/access.md: who may call what, from the server's own tables
	@python -m tests.access.write

protocol-pages: $(ENV) ## write what is generated of docs/reference/protocol anew: errors, and the shapes of every version
	@python -m tests.docs.errors_page
	@python -m tests.docs.shapes_page

long: $(ENV) ## the long tests
	@python -m pytest -n 3 --durations=12 $(LONG) $(LONGEST:%=--ignore=%) $(ARGS)

longest: $(ENV) ## the longest tests: abuse, overload, upgrades, executors, storms of workers, PostgreSQL behind a pooler
	@python -m pytest -n 2 $(LONGEST) $(ARGS)

upgrade: $(ENV) ## upgrade from an older commit, to a future schema and back, under load, on both stores
	@python -m pytest tests/cli/serve/test_upgrade.py $(ARGS)

coverage: $(ENV) chromium ## the tests of test, long and browser, and which lines they reach; fails below the threshold
	@python -m pytest -n 2 --cov --cov-report=term $(LONGEST:%=--ignore=%) --ignore=tests/docs/test_sessions.py

fuzz: $(ENV) ## generated requests against a server, and more examples for property tests (FUZZ_SECONDS=60)
	@python -m tests.fuzz.run

fuzz-parsers: $(ENV) ## every parser under a guided fuzzer (FUZZ_SECONDS=60 for each, FUZZ_PARSERS=json,url selects)
	@python -m tests.fuzz.run_parsers

chaos: $(ENV) ## kill and freeze a server under load, then check what every client saw (CHAOS_SECONDS=120 CHAOS_SEED=...)
	@python -m tests.chaos.run
	@SOAK_SECONDS=$${SOAK_SECONDS:-30} python -m tests.chaos.soak

chaos-cluster: $(ENV) ## the same with three servers, two workers, PostgreSQL and NATS, all killed and frozen
	@python -m tests.chaos.run --replicas

endurance: $(ENV) ## ten-minute tasks through `dragoman flaky` over every binding: no event lost or repeated (ENDURANCE_SECONDS=600)
	@python -m tests.endurance.run

soak: $(ENV) ## steady load for an hour: do memory, files and handles stay flat? (SOAK_SECONDS=3600)
	@python -m tests.chaos.soak

foreign: $(ENV) ## the published clients against our server, each in its own environment
	@python -m tests.foreign.run $(ARGS)

foreign-cluster: $(ENV) ## the same against three servers behind a round-robin
	@python -m tests.foreign.run --replicated $(ARGS)

bench: $(ENV) ## the bare transports, other servers and us, side by side (ARGS="--only grpc-send --rounds 3", --help)
	@python -m bench $(ARGS)

bench-smoke: $(ENV) ## the benchmarks' short form: checks that all servers give correct responses
	@BENCH_SHORT=1 python -m bench $(ARGS)

profile: $(ENV) ## CPU profile of one send (ARGS="--binding jsonrpc --callers 64")
	@python -m bench.studies.profile $(ARGS)

# ---------------------------------------------------------------- console

NODE_MODULES := console/node_modules/.made

$(NODE_MODULES): console/package.json console/package-lock.json
	@command -v npm >/dev/null || { echo "make: the console is built with Node.js 20 or newer; there is no npm here" >&2; exit 1; }
	@cd console && npm ci --silent --no-audit --no-fund && touch node_modules/.made

console: $(NODE_MODULES) ## build the console from console/ into the package, where it is committed
	@cd console && npm run --silent check && npm run --silent build

console-check: ## is the committed console what console/ builds? Where there is no Node nobody can tell
	@if command -v npm >/dev/null; then tools/check_console.sh; else echo "console-check: not compared (no npm)"; fi

chromium:
	@python -m tests.console.chromium

browser: $(ENV) chromium ## the console in a headless Chromium, against the real server (CHROMIUM=/path/to/one)
	@python -m pytest -n 2 tests/console $(ARGS)

screenshots: $(ENV) chromium ## take the console's pictures for docs/ and the README
	@python -m tests.console.screenshots

# ---------------------------------------------------------------- documentation

DOCS := .tools/docs/bin
# MkDocs would warn of its own next version.
MKDOCS = NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(DOCS)/mkdocs

docs: $(ENV) $(DOCS)/.made ## the documentation as a site, in site/; a link that leads nowhere fails it
	@set -o pipefail; $(MKDOCS) build $(ARGS) 2>&1 | sed "/^INFO/d"
	@echo "docs: site/index.html"

docs-serve: $(ENV) $(DOCS)/.made ## the same at http://127.0.0.1:8000, built again after each change
	@$(MKDOCS) serve --livereload $(ARGS)

sessions: $(ENV) ## what every page shows is done, from top to bottom, on real servers
	@python -m pytest -n 3 tests/docs/test_sessions.py $(ARGS)

docs-test: $(ENV) ## what every page shows, done; and a table of all blocks (ARGS="docs/how-to/push.md" for some)
	@python -m tests.docs $(ARGS)

settings: $(ENV) ## write docs/reference/settings.md anew, from the options of `dragoman serve`
	@python -m tools.settings_page

$(DOCS)/.made: uv.lock tools/tool_env.sh | $(UV)
	@tools/tool_env.sh "$(PYTHON)" $(UV) docs --only-group docs && touch $@

# ---------------------------------------------------------------- checks

check: format-check lint types layers proto-check console-check ## everything short of running the tests

format: $(ENV) ## rewrite Python and proto sources in the house format
	@ruff format . && ruff check --fix-only --quiet . && buf format proto -w

format-check: $(ENV) ## is everything in the house format?
	@ruff format --check .

lint: $(ENV) ## ruff, and no retired word in any name (tools/retired_words.toml)
	@ruff check .
	@python tools/retired_words.py

types: $(ENV) ## mypy, strict
	@mypy

layers: $(ENV) ## does every floor use only the floors below it?
	@python -m pytest -q tests/test_layers.py

# ---------------------------------------------------------------- release

scorecard: $(ENV) ## docs/reference/scorecard.md anew, from what was run: clients, chaos, benchmarks, limits
	@python -m tools.scorecard

release: $(ENV) ## prepare a release (VERSION=0.2.0): docs/how-to/releasing.md
	@python -m tools.release $(VERSION)
	@$(MAKE) --no-print-directory baseline scorecard wheel-check sbom
	@python -m pytest -q tests/supply/test_installed.py
	@python -m tools.release --last-words

# ---------------------------------------------------------------- supply chain

SUPPLY := .tools/supply/bin

supply: wheel-check sbom ## everything about what we are made of; goes on where no advisory service can be reached
	@$(MAKE) --no-print-directory $(SUPPLY)/.made
	@$(SUPPLY)/python tools/audit_deps.py $(if $(OSV),--osv $(OSV)) || [ $$? = 3 ]

audit-deps: $(SUPPLY)/.made ## known vulnerabilities of what uv.lock names (OSV=all.zip: by OSV's export, without a network)
	@$(SUPPLY)/python tools/audit_deps.py $(if $(OSV),--osv $(OSV))

sbom: $(SUPPLY)/.made .tools/runtime/bin/.made ## dist/dragoman.cdx.json: what whoever installs us gets, with all extras (CycloneDX)
	@mkdir -p dist
	@$(SUPPLY)/cyclonedx-py environment --output-reproducible --spec-version 1.6 --mc-type application \
		--pyproject pyproject.toml -o dist/dragoman.cdx.json .tools/runtime
	@echo "sbom: dist/dragoman.cdx.json"

wheel-check: $(ENV) ## two builds in two places: the same bytes? leaves them in dist/
	@tools/check_wheel.sh .venv/bin/python dist

$(SUPPLY)/.made: uv.lock tools/tool_env.sh | $(UV)
	@tools/tool_env.sh "$(PYTHON)" $(UV) supply --only-group supply && touch $@

.tools/runtime/bin/.made: uv.lock tools/tool_env.sh | $(UV)
	@tools/tool_env.sh "$(PYTHON)" $(UV) runtime --no-dev --all-extras && touch $@

deploy-check: $(ENV) ## Dockerfile, compose file and chart: linted, rendered, and held against the API's schemas
	@python -m tools.check_deploy

# ---------------------------------------------------------------- protos

googleapis: $(ENV)
	@python tools/sync_googleapis.py

proto: googleapis ## regenerate gen/dragoman_pb and gen/dragoman.binpb from proto/
	@buf generate
	@buf build proto -o gen/dragoman.binpb

proto-check: googleapis ## protos: lint, format, breaking changes, and is gen/ what they generate?
	@tools/check_protos.sh

baseline: googleapis ## at a release only: what later protos are compared with
	@buf build proto --exclude-source-info -o proto/baseline.binpb

openapi: googleapis .tools/bin/protoc-gen-openapiv2 ## regenerate gen/openapi (Swagger 2.0)
	@buf generate --template buf.gen.openapi.yaml

.tools/bin/protoc-gen-openapiv2:
	@tools/get_gateway_plugins.sh .tools/bin || { echo "make openapi: protoc-gen-openapiv2 is not to be had on this machine;" \
		"put one (grpc-gateway 2.20) at $@, gen/openapi stays as committed" >&2; exit 1; }

clean: ## remove everything that make made
	rm -rf .venv .tools .foreign .bench .chaos .fuzz site console/node_modules third_party dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage htmlcov
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
