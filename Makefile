# One door. Every target brings what it needs: a fresh machine with Python 3.11+ and make needs no other step.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
ARGS   ?=
SAGA   ?=
SEED   ?=
PLAN   ?=
WORLD  ?=
ASK    ?=
FILE   ?=
# How many tests run at once: one more than CI has processors, for a good part of what tests take is waiting.
WORKERS ?= 3
SIDE_BY_SIDE := -n $(WORKERS) --dist worksteal

# A process compiles 600 modules when nothing keeps what it compiled: 2 s of CPU for each of the processes that tests start.
export PYTHONDONTWRITEBYTECODE :=

comma := ,
empty :=
space := $(empty) $(empty)

.PHONY: lock audit-deps help up image set demo test test-all test-real test-hypervisor test-hypervisor-all test-hypervisor-ci test-hypervisor-cloud-init test-hypervisor-tempest probe-hypervisor check ci dev fmt fmt-check lint types layers rooms prove simulate soak fuzz revision bless which-tests why bench bench-peers bench-hypervisor clean

help:  ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# Every package is known by the hash of its file: nothing else is installed, whoever serves it.
PIP := -m pip install -q --disable-pip-version-check
WITHOUT_DEPS := --no-deps --no-build-isolation
EMBEDDED := packages/embedded
TESTING := packages/testing
SOURCES := src packages tests
DEV_EXTRAS := client,nats,notifications,postgres,redfish,tracing,dev
LOCK_HOW := -c constraints.txt -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url
LOCK := pip compile pyproject.toml $(LOCK_HOW) --extra build

$(VENV)/.up: pyproject.toml $(EMBEDDED)/pyproject.toml requirements.lock
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing Moorage and the openstack client into $(VENV) (once) ..."
	@$(BIN)/python $(PIP) --require-hashes -r requirements.lock
	@$(BIN)/python $(PIP) $(WITHOUT_DEPS) -e . -e $(EMBEDDED)
	@touch $@

$(VENV)/.dev: pyproject.toml $(EMBEDDED)/pyproject.toml $(TESTING)/pyproject.toml requirements-dev.lock
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing what the tests need into $(VENV) (once) ..."
	@$(BIN)/python $(PIP) --require-hashes -r requirements-dev.lock
	@$(BIN)/python $(PIP) $(WITHOUT_DEPS) -e . -e $(EMBEDDED) -e $(TESTING)
	@touch $(VENV)/.up $@

$(VENV)/tools/.made:
	@$(PYTHON) -m venv $(VENV)/tools
	@$(VENV)/tools/bin/python $(PIP) 'uv>=0.9,<1' 'pip-audit>=2.9,<3'
	@touch $@

lock: $(VENV)/tools/.made  ## write the locks anew, after a change of dependencies in pyproject.toml and constraints.txt
	@$(VENV)/tools/bin/uv $(LOCK) --extra client -o requirements.lock
	@$(VENV)/tools/bin/uv $(LOCK) $(foreach each,$(subst $(comma),$(space),$(DEV_EXTRAS)),--extra $(each)) -o requirements-dev.lock
	@echo libvirt-python | $(VENV)/tools/bin/uv pip compile - $(LOCK_HOW) -o requirements-libvirt.lock

audit-deps: $(VENV)/.dev $(VENV)/tools/.made  ## licences of what is installed, and known advisories, where a database of them answers
	@$(BIN)/python -m moorage_testing.audit_deps $(VENV)/tools/bin/pip-audit

dev: $(VENV)/.dev  ## only install

up: $(VENV)/.up  ## a whole cloud in one process: API, conductor, two cells, eight simulated hosts, embedded services
	@$(BIN)/moorage up $(ARGS)

image:  ## a small Linux image for real hosts, made of Debian's packages (OUT=guest; boots by BIOS, answers SSH as tempest)
	@$(TESTING)/moorage_testing/hypervisor/image_needs.sh
	@$(TESTING)/moorage_testing/hypervisor/build_guest.sh $(or $(OUT),guest)
	@$(TESTING)/moorage_testing/hypervisor/build_login_guest.sh $(or $(OUT),guest)

set: $(VENV)/.dev  ## the same as separate processes on this machine: PostgreSQL, NATS, two APIs, two conductors, agents
	@$(BIN)/moorage set $(ARGS)

demo: $(VENV)/.up  ## boot servers on a running cloud, and say where each one landed and why
	@$(BIN)/moorage demo $(ARGS)

test: $(VENV)/.dev  ## the tests of every day, in some minutes (narrow it: make test ARGS="-k boot")
	@$(BIN)/python -m pytest -q $(SIDE_BY_SIDE) -m "not slow and not matrix and not soak and not real and not hypervisor" $(ARGS)

test-all: $(VENV)/.dev  ## those, the whole matrix of crashes, and all that starts and kills processes: what CI runs
	@$(BIN)/python -m pytest -q $(SIDE_BY_SIDE) -m "not soak and not real and not hypervisor" $(ARGS)

test-real: $(VENV)/.dev  ## beside a real Neutron, Keystone, Glance, Placement and Cinder, installed from PyPI once for this machine
	@$(BIN)/python -m moorage_testing.real_services.install
	@$(BIN)/python -m pytest -q -m real tests/real tests/contract $(ARGS)

# Only the library: Moorage itself is installed already, and other tests may be using it.
LIBVIRT_EXTRA = @$(BIN)/python $(PIP) --require-hashes -r requirements-libvirt.lock

test-hypervisor: $(VENV)/.dev  ## real guests by libvirt and QEMU: the driver, wires and whole clouds; as root, in namespaces; installs Debian's packages once
	@$(BIN)/python -m moorage_testing.hypervisor install
	$(LIBVIRT_EXTRA)
	@$(BIN)/python -m moorage_testing.hypervisor run -q -m "hypervisor and not hypervisor_all and not cloud_init" tests/hypervisor tests/contract $(ARGS)

test-hypervisor-all: $(VENV)/.dev  ## those, and all else that is tested with real guests
	@$(BIN)/python -m moorage_testing.hypervisor install
	$(LIBVIRT_EXTRA)
	@$(BIN)/python -m moorage_testing.hypervisor run -q -m "hypervisor and not cloud_init" tests/hypervisor tests/contract $(ARGS)

test-hypervisor-cloud-init: $(VENV)/.dev  ## a small cloud image of Debian's packages, and what cloud-init makes of what guests are told; as root
	@$(BIN)/python -m moorage_testing.hypervisor install cloud-init
	$(LIBVIRT_EXTRA)
	@$(BIN)/python -m moorage_testing.hypervisor run -q -m cloud_init tests/hypervisor $(ARGS)

test-hypervisor-ci: $(VENV)/.dev  ## the share of them that CI executes
	@$(BIN)/python -m moorage_testing.hypervisor install
	$(LIBVIRT_EXTRA)
	@$(BIN)/python -m moorage_testing.hypervisor run -q -m hypervisor_ci tests/hypervisor $(ARGS)

test-hypervisor-tempest: $(VENV)/.dev  ## Tempest's scenarios, which log into real guests: an hour and more (narrow it: ARGS="test_stamp_pattern"); as root
	@$(BIN)/python -m moorage_testing.hypervisor install
	$(LIBVIRT_EXTRA)
	@$(BIN)/python -m moorage_testing.hypervisor tempest $(ARGS)

probe-hypervisor: $(VENV)/.dev  ## whether a guest really can run here; installs what it needs, and boots one
	@$(BIN)/python -m moorage_testing.hypervisor probe
	$(LIBVIRT_EXTRA)

check: fmt-check lint types layers test  ## before a commit, in the order that fails fastest

ci:  ## all that CI runs (the soak tests and benchmarks are not in it)
	@.ci/run

fmt: $(VENV)/.dev  ## format in place
	@$(BIN)/ruff format $(SOURCES)
	@$(BIN)/ruff check --fix $(SOURCES)

fmt-check: $(VENV)/.dev
	@$(BIN)/ruff format --check -q $(SOURCES)

lint: $(VENV)/.dev  ## style
	@$(BIN)/ruff check $(SOURCES)

types: $(VENV)/.dev  ## two type checkers
	@echo "mypy (a minute when nothing is cached) ..."
	@$(BIN)/mypy
	@echo "pyright (two minutes) ..."
	@$(BIN)/pyright

layers: $(VENV)/.dev  ## who may import whom
	@PYTHONPATH=src:$(EMBEDDED):$(TESTING) $(BIN)/lint-imports

rooms: layers

prove: $(VENV)/.dev  ## break one operation, or all of them: fail, repeat and kill every step (SAGA=boot)
	@$(BIN)/python -m pytest -q $(SIDE_BY_SIDE) tests/sagas $(if $(SAGA),-k $(SAGA)) $(ARGS)

simulate: $(VENV)/.dev  ## one simulation of the whole cloud, by its seed or from a plan (SEED=17, PLAN=found.json)
	@$(BIN)/python -m moorage_testing.simulation $(addprefix --seed ,$(SEED)) $(addprefix --plan ,$(PLAN)) $(ARGS)

soak: $(VENV)/.dev  ## the long tests, 10,000 simulations among them
	@$(BIN)/python -m pytest -q $(SIDE_BY_SIDE) -m soak $(ARGS)

fuzz: $(VENV)/.dev  ## malformed requests to all listeners and messages to all that hear the bus (ARGS="--seed 7 --postgres")
	@$(BIN)/python -m moorage_testing.fuzz $(ARGS)

revision: $(VENV)/.dev  ## draft a revision of changed tables: make revision TREE=region SAYS="hosts have a rack"
	@$(BIN)/python -m moorage_testing.draft_revision $(TREE) "$(SAYS)"

bless: $(VENV)/.dev  ## accept new golden files after reading the diff
	@MOORAGE_BLESS=1 $(BIN)/python -m pytest -q -m "not soak and not real and not hypervisor" -k golden $(ARGS); git --no-pager diff --stat -- tests/golden

which-tests: $(VENV)/.dev  ## the tests of a source file, and the source files of a test (FILE=src/moorage/…)
	@$(BIN)/python -m moorage_testing.which_tests $(FILE)

why: $(VENV)/.up  ## replay a scheduler decision from a picture of the world (WORLD=… ASK=…)
	@$(BIN)/moorage schedule --world $(WORLD) --ask $(ASK)

bench: $(VENV)/.dev  ## the benchmarks, with budgets
	@$(BIN)/python -m moorage_testing.bench $(ARGS)

bench-peers: $(VENV)/.dev  ## the benchmarks beside the real Placement and Neutron
	@$(BIN)/python -m moorage_testing.bench --peers $(ARGS)

bench-hypervisor: $(VENV)/.dev  ## what a boot of a real guest takes, and how much of that is ours; as root
	@$(BIN)/python -m moorage_testing.hypervisor install
	$(LIBVIRT_EXTRA)
	@$(BIN)/python -m moorage_testing.hypervisor bench $(ARGS)

clean:  ## remove what the targets made (not the data of `make up`)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
