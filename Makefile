# Two commands set up everything on a fresh machine: `make demo` and `make test`. `make help` lists the others.
PYTHON ?= python3
BIN := .venv/bin
# For two cores: tests of processes wait as much as they compute. Each more collects all tests once more, 4 CPU s.
WORKERS ?= 4
PROFILE ?= quick
# Many images for CI set it. Each of the processes that tests start would then compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check static lint types contracts generated unit e2e e2e-cluster e2e-nodes e2e-node e2e-gitops \
  e2e-scale e2e-load e2e-programs crash-test explore latency hardware fmt lock manifests docs release audit clean

help:  ## list the targets
	@sed -nE 's/^([a-z0-9-]+):[^#]*## (.*)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do \
	  printf '%-12s %s\n' "$$name" "$$text"; done

demo: $(if $(wildcard .venv/.ready),.venv/.ready,.venv/.sandbox)  ## run the main job in the sandbox, as a story
	$(BIN)/gpuplan sandbox demo

# The quick profile leaves out what takes seconds of CPU and has its like in what is left: .ci/run takes all.
SPARED = $(if $(filter quick,$(PROFILE)),-m "not thorough")

test: .venv/.ready  ## run what a change must pass; PROFILE=thorough, as in .ci/run, runs every test and draws seven times as many examples
	@$(MAKE) --no-print-directory -j2 static unit ONLY='$(SPARED)'

check: .venv/.ready  ## run the inner loop: all that is static, and the tests near what differs from the main branch
	@$(MAKE) --no-print-directory -j2 static unit ONLY="-m 'not slow and not thorough' $$($(BIN)/python -m tests.near)"

static: lint types contracts generated docs  ## lint, types, import contracts, generated files, links of the documentation

lint: .venv/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/zizmor --offline --quiet --no-progress .github
	$(BIN)/codespell
	@$(BIN)/codespell --regex "[A-Za-z]+" --dictionary docs/old-words.txt --skip '$(OLD_WORDS_SHOWN)' $(PLAIN)
	@! grep -rInEi --exclude-dir=__pycache__ $(addprefix --exclude=,glossary.md old-words.txt) \
	  '\b(in goes?|out comes?|asks? for|for want of|for good|be had|look again|told so)\b' $(PLAIN)

# Where docs/old-words.txt, and the phrases above, which no list of words can hold, are refused. The glossary and
# CONTRIBUTING.md show old words as examples; an image of the rig has a user nobody.
PLAIN = kube crds partitioning cli controller nodeagent sandbox tests benchmarks deploy docs examples changes README.md CHANGELOG.md SECURITY.md CODE_OF_CONDUCT.md ROADMAP.md .github
OLD_WORDS_SHOWN = docs/glossary.md,docs/old-words.txt,./tests/e2e/rig/containers/images.py,tests/e2e/rig/containers/images.py

types: .venv/.ready
	$(BIN)/mypy .

contracts: .venv/.ready  ## who may import whom
	$(BIN)/lint-imports

generated: .venv/.ready  ## files made from others are fresh
	$(BIN)/python -m kube.kubelet_api --check
	$(BIN)/python -m deploy.generate --check
	$(BIN)/python -m docs.generate --check
	$(BIN)/uv pip check --quiet --python $(BIN)/python

docs: .venv/.ready  ## build the site of the documentation into build/site; a broken link or anchor is an error
	$(BIN)/mkdocs build --quiet

unit: .venv/.ready  ## run the tests; PROFILE=thorough draws seven times as many examples, PROFILE=explore new ones; WORKERS=1 runs one process
	@$(if $(COVERAGE),$(BIN)/coverage erase)
	@$(call once_or_twice,$(UNIT),$(ONLY),$(CACHE))
	@$(if $(COVERAGE),$(above_floor))

UNIT = $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --hypothesis-profile=$(PROFILE) $(if $(COVERAGE),$(MEASURED))
CACHE = .pytest_cache

# With COVERAGE=1, as in .ci/run, the statements and branches of the product that the tests run are counted; pyproject.toml
# has the floor. It is checked at the end: a second run of failed tests adds to the first.
MEASURED = --cov --cov-append --cov-report= --cov-fail-under=0
above_floor = printf 'coverage of the product, statements and branches, in percent: '; $(BIN)/coverage report --format=total

# With AGAIN=1, as in .ci/run, tests that failed (exit code 1) are run a second time, by themselves: many start servers and
# processes, which a busy machine may slow down. At most two in one run of all suites; more fail it. Both runs are printed;
# a test that fails twice fails.
once_or_twice = { $(1) $(2) || { test $$? = 1 -a "$(AGAIN)" = 1 && $(BIN)/python -m tests.second_try $(3) && \
  $(1) $(2) --last-failed --last-failed-no-failures=none; }; }

# Builds etcd, kube-apiserver, scheduler, controller-manager and kubelet from pinned Go modules where they are not cached yet.
# Two halves at a time, each with a control plane of its own: both wait much and compute little.
E2E = GPUPLAN_E2E=1 K8S=$(K8S) $(BIN)/python -u -m pytest -q
labelled = while IFS= read -r line; do echo "$(1) | $$line"; done
e2e-cluster e2e-nodes: SHELL := bash
e2e-cluster e2e-nodes: .SHELLFLAGS := -o pipefail -c

e2e: e2e-programs  ## run the product on a real control plane and kubelet; K8S=1.37 chooses the version
	@$(MAKE) --no-print-directory -j2 e2e-cluster e2e-nodes

e2e-cluster:
	@$(call once_or_twice,$(E2E),tests/e2e $(addprefix --ignore=tests/e2e/,kubelet containers gitops) -o cache_dir=.pytest_cache/cluster,.pytest_cache/cluster) 2>&1 | $(call labelled,cluster)

e2e-nodes:
	@$(call once_or_twice,$(E2E),tests/e2e/kubelet -o cache_dir=.pytest_cache/nodes,.pytest_cache/nodes) 2>&1 | $(call labelled,nodes  )

e2e-node: .venv/.ready  ## run the product in real containers (containerd, runc): Linux, as root
	$(BIN)/python -m tests.e2e.rig.containers
	GPUPLAN_E2E=1 K8S=$(K8S) tests/e2e/rig/containers/enter.sh $(BIN)/python -u -m pytest -q tests/e2e/containers \
	  -p no:cacheprovider

e2e-gitops: e2e-programs  ## sync the chart and plans with Argo CD's engine and with Flux, on a real control plane
	$(E2E) tests/e2e/gitops

hardware: .venv/.ready  ## run the product's MPS on the idle NVIDIA GPU of this machine, as root; changes no mode of it
	GPUPLAN_HARDWARE=1 $(BIN)/python -u -m pytest -q -p no:cacheprovider tests/hardware

e2e-scale: e2e-programs  ## what takes longer: minutes of waiting, more samples, more clusters
	GPUPLAN_E2E_LONG=1 GPUPLAN_E2E_SAMPLES=20 GPUPLAN_E2E_CLUSTERS=1000 GPUPLAN_E2E_SEEDS=5 $(E2E) \
	  tests/e2e/kubelet tests/e2e/test_scheduler.py -k "long or latency or five_minutes or slice_made or random_clusters or planned_pods"
	@$(MAKE) --no-print-directory e2e-load

# At a rate that two cores bear, with the heartbeat that docs/performance.md advises for so many nodes: 22 minutes.
e2e-load: e2e-programs  ## of it, only the load: NODES=1000 simulated nodes and PODS=10000 pods on a real control plane
	K8S=$(K8S) $(BIN)/python -m benchmarks.scale --nodes $(or $(NODES),1000) --pods $(or $(PODS),10000) \
	  --rate $(or $(RATE),8) --heartbeat $(or $(HEARTBEAT),20) --limit-seconds 2400

# A fault at each place of each story: two core hours. RANDOM=300 draws so many, SEED others, SECONDS ends it.
crash-test: .venv/.ready  ## kill, cut the power, lose answers ... at every place of every story; RANDOM=300 draws so many
	$(BIN)/python -m tests.crashes --random $(or $(RANDOM),0) --seed $(or $(SEED),0) --seconds $(or $(SECONDS),1e9)

# What was seen ends a schedule; a shortest schedule is printed for what is harmed.
explore: .venv/.ready  ## try interleavings of a node that were not seen yet; TRANSITIONS=1000000, SEED others, SECONDS ends it
	$(BIN)/python -m tests.crashes.explore --transitions $(or $(TRANSITIONS),1000000) --seed $(or $(SEED),$(GITHUB_RUN_NUMBER),0) --seconds $(or $(SECONDS),1e9)

latency: e2e-programs  ## from a pod's creation to Running on a real control plane, by phase; RUNS=5 of each way to come, a quarter of an hour
	K8S=$(K8S) $(BIN)/python -m benchmarks.latency --runs $(or $(RUNS),5)

manifests: .venv/.ready  ## render what is generated of the chart, and deploy/manifests; builds helm once, with Go
	helm="$$($(BIN)/python -m tests.e2e.rig helm)" && $(BIN)/python -m deploy.generate --write --helm "$$helm"

e2e-programs: .venv/.ready
	$(BIN)/python -m tests.e2e.rig $(if $(K8S),--kubernetes $(K8S)) build

fmt: .venv/.ready  ## format the code and apply safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: .venv/.ready  ## renew requirements/*.txt from pyproject.toml: the only place where versions are chosen
	$(call lock,development,pyproject.toml --all-extras)
	$(call lock,product,pyproject.toml -c requirements/development.txt)
	$(call lock,image,pyproject.toml -c requirements/development.txt $(addprefix --no-emit-package ,$(NEVER_IMPORTED)))
	$(call lock,sandbox,pyproject.toml --extra sandbox --extra build -c requirements/development.txt)
	echo uv | $(call lock,uv,- -c requirements/development.txt)
	echo 'pip-audit>=2.10' | $(call lock,audit,-)
# What the kubernetes client requires for its asynchronous copy, and pydantic for Windows: no program imports it.
NEVER_IMPORTED = aiohappyeyeballs aiohttp aiohttp-retry aiosignal frozenlist multidict propcache tzdata yarl

# A version is taken a week after it came out: by then one that does harm has been found.
lock = $(BIN)/uv pip compile -q $(2) --upgrade --exclude-newer "1 week" --universal --python-version 3.11 --generate-hashes --no-annotate \
  --custom-compile-command "make lock" -o requirements/$(1).txt

# HELM=helm takes the one on PATH; without it one of a pinned version is built once, with Go.
release: .venv/.ready  ## make everything of the release VERSION, the image first, in build/release; REPOSITORY names the image's place
	helm="$(or $(HELM),$$($(BIN)/python -m tests.e2e.rig helm))" && \
	  $(BIN)/python -m deploy.release --version "$(VERSION)" --repository "$(REPOSITORY)" --helm "$$helm" \
	  --out $(or $(OUT),build/release/$(VERSION))

audit: .venv/.ready  ## look for known vulnerabilities in what the image contains
	$(BIN)/uv venv --quiet --clear build/audit
	$(BIN)/uv pip sync --quiet --require-hashes --python build/audit/bin/python requirements/audit.txt
	build/audit/bin/pip-audit --disable-pip --no-deps --requirement requirements/image.txt

# Nothing is resolved here, however old pip is: it installs uv by its hash, and uv what a lock lists, no more and no less.
# The lock holds the build back-end, so that building the checkout fetches nothing either.
.venv/.ready: requirements/development.txt
.venv/.sandbox: requirements/sandbox.txt
.venv/.ready .venv/.sandbox: pyproject.toml requirements/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "gpuplan needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@rm -f .venv/.ready .venv/.sandbox
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/uv.txt
	$(BIN)/uv pip sync --quiet --require-hashes --python $(BIN)/python $(filter-out %/uv.txt,$(filter requirements/%,$^))
	$(BIN)/uv pip install --quiet --no-deps --no-build-isolation --python $(BIN)/python -e .
	@touch $@

clean:  ## remove everything that these targets made
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
