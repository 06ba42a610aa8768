# Two commands set up everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint types contracts generated unit e2e e2e-programs fmt clean

demo: .venv/.ready  ## the main job, in the sandbox, told as a story
	$(BIN)/gpuplan sandbox demo

test: lint types contracts generated unit  ## everything that a change must pass

lint: .venv/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: .venv/.ready
	$(BIN)/mypy .

contracts: .venv/.ready  ## who may import whom
	$(BIN)/lint-imports

generated: .venv/.ready  ## files made from others are fresh
	$(BIN)/python -m crds --check
	$(BIN)/python -m kube.kubelet_api --check

unit: .venv/.ready
	$(BIN)/python -m pytest -q

# Builds etcd, kube-apiserver, scheduler, controller-manager and kubelet from pinned Go modules where they are not cached yet.
e2e: e2e-programs  ## the product on a real control plane and a real kubelet; K8S=1.30.14 chooses the version
	GPUPLAN_E2E=1 K8S=$(K8S) $(BIN)/python -m pytest -q tests/e2e

e2e-programs: .venv/.ready
	$(BIN)/python -m sandbox.controlplane build $(if $(K8S),--version $(K8S))

fmt: .venv/.ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.venv/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "gpuplan needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[sandbox,benchmark,dev]'
	@touch $@

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
