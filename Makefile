# hotseat: `make run` shows it at work, `make test` tests it, `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BIN := $(CURDIR)/bin
# What is built does not depend on where the tree lies, so that a fresh clone finds what
# another one has built in Go's cache.
export GOFLAGS := $(strip $(filter-out -trimpath,$(GOFLAGS)) -trimpath)
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X hotseat.dev/hotseat/launcher/internal/edges/version.Version=$(VERSION)
# Where the set-up of real vLLM and the built Kubernetes live, outside the tree.
HOTSEAT_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/hotseat
run vllm-cpu test-vllm test-vllm-long bench-vllm chart cluster-up test-cluster test-cluster-long test-cluster-vllm test-cluster-policies test-upgrade test-llm-d bench-cluster: export HOTSEAT_CACHE := $(HOTSEAT_CACHE)
# A release of vLLM for `make vllm-cpu` and `make test-vllm`, as VLLM=0.32.0; empty:
# the one that test/vllm-cpu has locked. Any other has a place of its own.
VLLM ?=
LOCKED_VLLM := $(shell sed -n 's/^locked_release=//p' test/vllm-cpu/release.sh)
OTHER_VLLM := $(filter-out $(LOCKED_VLLM),$(VLLM))
vllm-cpu test-vllm test-vllm-long: export VLLM := $(VLLM)
vllm-cpu test-vllm test-vllm-long: export HOTSEAT_CACHE := $(HOTSEAT_CACHE)$(if $(OTHER_VLLM),/releases/$(OTHER_VLLM))
# The releases that `make test-vllm-matrix` tries: the locked one and the newest
# that is packaged for CPUs. engine.TriedReleases names the same.
RELEASES ?= $(LOCKED_VLLM) 0.32.0 0.26.0 0.22.1
# What `make run` serves the models with: enginesim or vllm-cpu; a vllm on PATH
# is used when there is one and a GPU.
ENGINE ?= auto
# TOUR=only ends `make run` after the walk.
TOUR ?= stay
# THIRD=HASH runs a third of the long tests and of the fuzz targets, which the hash picks;
# empty: all of them.
THIRD ?=
test-cluster-long test-vllm-long test-sim-defects test-vllm-matrix fuzz: export THIRD := $(THIRD)
# `go test`; in CI it writes reports too, and runs what failed once more.
GOTEST := bash $(CURDIR)/test/ci/gotest.sh

# How many inputs each fuzz target tries in `make fuzz` (or how long, as 1m).
FUZZTIME ?= 20000x

# What `make images` makes images for.
ARCHES ?= amd64 arm64
comma := ,
space := $(subst ,, )

# What the API server of the end-to-end suite notes.
AUDIT := test/cluster/e2e/testdata/audit.yaml

# The commit whose chart and programs `make test-upgrade` upgrades from. This one is
# the last before the packages had storeys.
BEFORE ?= 71adcc2

# A release of Kubernetes for the test clusters, as KUBERNETES=1.33.5, which is downloaded
# and built first; empty: the one that test/cluster/kube/go.mod names.
KUBERNETES ?=
cluster-up test-cluster test-cluster-long test-cluster-vllm test-cluster-policies test-upgrade: export HOTSEAT_KUBERNETES := $(KUBERNETES)

# How many nodes `make cluster-up` starts; 0: the API server alone.
NODES ?= 1

# In how many clusters side by side `make test-cluster` runs its tests; 0: as many as
# this machine keeps busy.
LANES ?= 0

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | while IFS=$$'\t' read -r t d; do printf '  %-17s %s\n' "$$t" "$$d"; done

.PHONY: build
build: $(BIN)/launcher $(BIN)/modelfetch $(BIN)/podresources $(BIN)/copier $(BIN)/requester $(BIN)/controller $(BIN)/enginesim ## build the programs into bin/

# Pages of a program count as its memory. Without the traces of gRPC (grpcnotrace) nothing
# looks methods up by their names, and the linker leaves out what nobody calls: a quarter of
# the controller, a third of modelfetch.
#
# go build itself knows what goes into a program, files that are embedded too, and
# does nothing where nothing has changed.
BUILDING := bash test/building.sh
.PHONY: $(BIN)/launcher $(BIN)/modelfetch $(BIN)/podresources $(BIN)/copier $(BIN)/requester $(BIN)/requester-nvml $(BIN)/controller $(BIN)/enginesim
$(BIN)/launcher:
	@CGO_ENABLED=1 $(BUILDING) launcher go build -trimpath -ldflags '$(LDFLAGS)' -o $@ ./launcher/cmd/launcher

# Static, as all that is copied into images of others. Google's client speaks HTTP here;
# without its gRPC modules the program starts in half the time, and is a quarter smaller.
$(BIN)/modelfetch:
	@CGO_ENABLED=0 $(BUILDING) modelfetch go build -trimpath -tags disable_grpc_modules,grpcnotrace -ldflags '-s -w' -o $@ ./launcher/cmd/modelfetch

# Static, for images without a C library. NVML needs one: requester-nvml has it.
$(BIN)/requester:
	@CGO_ENABLED=0 $(BUILDING) requester go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o $@ ./dualpods/cmd/requester

$(BIN)/podresources:
	@CGO_ENABLED=0 $(BUILDING) podresources go build -trimpath -tags grpcnotrace -ldflags '-s -w -X main.version=$(VERSION)' -o $@ ./dualpods/cmd/podresources

$(BIN)/copier:
	@CGO_ENABLED=0 $(BUILDING) copier go build -trimpath -ldflags '-s -w' -o $@ ./dualpods/cmd/copier

$(BIN)/controller:
	@CGO_ENABLED=0 $(BUILDING) controller go build -trimpath -tags grpcnotrace -ldflags '-s -w -X main.version=$(VERSION)' -o $@ ./dualpods/cmd/controller

$(BIN)/requester-nvml:
	@CGO_ENABLED=1 $(BUILDING) requester-nvml go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o $@ ./dualpods/cmd/requester

$(BIN)/enginesim:
	@CGO_ENABLED=0 $(BUILDING) enginesim go build -trimpath -ldflags '-s -w' -o $@ ./test/enginesim

.PHONY: run
run: $(BIN)/launcher $(if $(filter vllm-cpu,$(ENGINE)),,$(BIN)/enginesim) ## start the launcher, walk through create, chat and swap, stay up (ENGINE=vllm-cpu: real vLLM; TOUR=only: end after the walk)
	@ENGINE='$(ENGINE)' TOUR='$(TOUR)' BIN='$(BIN)' bash examples/tour.sh

# Tests that drive built programs: `go test` does not know that their results depend on
# these, and would repeat earlier ones. The race detector does not see into the programs.
DRIVING := test/e2e test/guide test/conformance deploy/images

# A program with the race detector sleeps for a second before it exits, for races of the
# goroutines that still run. Tests leave hardly any, and a tenth of a second is enough. What
# the caller says in GORACE wins.
QUICK_EXIT := GORACE="atexit_sleep_ms=100 $${GORACE:-}"

# Tests of the simulations that check types, by one goroutine.
UNRACED := ^TestEachDefectCanBeBroughtBack$$

# Tests of the simulations that play few schedules with the race detector, and many without it.
FEWER_RACED := NoSchedule|NoComposed|AnUndisturbed|UnbindingAt|PastItsDeadline|NotSelectedAnyMore|ASeedGives|WhatIsSimulated

.PHONY: test
test: ## all tests but those with real vLLM or Kubernetes (-race, but for those that drive built programs)
	$(QUICK_EXIT) $(GOTEST) -race -p 4 -timeout 14m -skip '$(UNRACED)' $$(go list ./... | grep -vE '/($(subst $(space),|,$(DRIVING)))$$')
	$(GOTEST) -count=1 -timeout 14m -parallel 4 $(addprefix ./,$(DRIVING))
	$(GOTEST) -run '$(FEWER_RACED)|$(UNRACED)' ./dualpods/internal/servers/binding ./dualpods/internal/simulation ./launcher/internal/core/simulation

.PHONY: test-sim
test-sim: ## the launcher's core and the controllers in simulated time, each under SEEDS=100000 schedules of events and faults FROM=1 on
	GOGC=400 SEEDS=$(or $(SEEDS),100000) FROM=$(or $(FROM),1) go test -count=1 -timeout 0 -v -run NoSchedule ./launcher/internal/core/simulation ./dualpods/internal/servers/binding ./dualpods/internal/simulation

.PHONY: test-sim-defects
test-sim-defects: ## bring each defect back that was mended in the launcher's core and in model caches and placement, take their rules out one by one, break each check, and see the simulations find it, within SEEDS=20000 schedules (DEFECT=part of its name, WRITE=1 to note the seeds that show them)
	HOTSEAT_TEST_LONG=1 SEEDS=$(or $(SEEDS),20000) WRITE=$(WRITE) DEFECT="$(or $(DEFECT),$$(bash test/ci/long.sh pattern defects))" $(GOTEST) -count=1 -timeout 0 -p 1 -v -run EachDefectIsFound ./launcher/internal/core/simulation ./dualpods/internal/simulation

.PHONY: test-long
test-long: ## the tests that take minutes: 1,000 cycles of create and delete
	HOTSEAT_TEST_LONG=1 $(GOTEST) -count=1 -timeout 14m -run ManyCycles ./test/e2e

.PHONY: vllm-cpu
vllm-cpu: ## set real vLLM up for this machine without a GPU, in the cache folder
	@bash test/vllm-cpu/setup.sh

.PHONY: test-vllm
test-vllm: vllm-cpu ## one life of an instance of real vLLM, by exec and by fork (VLLM=0.32.0: with that release)
	$(GOTEST) -count=1 -parallel 2 -timeout 20m -tags vllm -run '^TestARelease$$' ./test/vllm

.PHONY: test-vllm-long
test-vllm-long: build vllm-cpu ## all tests with real vLLM, that one too (VLLM=0.32.0: with that release, less what is recorded of the locked one)
	$(GOTEST) -count=1 -p 1 -parallel 2 -timeout 40m -tags vllm -run "^TestARelease\$$|$$(bash test/ci/long.sh pattern vllm)" $(if $(OTHER_VLLM),-skip TestAForkedStartImportsHardlyAnything ./test/vllm,./test/vllm/... ./test/conformance/... ./test/hubserver ./launcher/internal/engines/engine/...)

.PHONY: test-vllm-matrix
test-vllm-matrix: ## the life of an instance with several releases of vLLM, set up and removed one by one (RELEASES="0.32.0 0.18.1", KEEP=1, SETUP=only)
	@bash test/vllm-cpu/matrix.sh $(if $(THIRD),$$(RELEASES='$(filter-out $(LOCKED_VLLM),$(RELEASES))' bash test/ci/long.sh picked releases),$(RELEASES))

.PHONY: cluster-up
cluster-up: ## start a real Kubernetes on this machine, with simulated GPUs (NODES=2, KUBERNETES=1.33.5: that release; takes root)
	@go run ./test/cluster/cmd/cluster up --nodes $(NODES)

.PHONY: cluster-images
cluster-images: ## make the images of the project's programs known to that Kubernetes
	@go run ./test/cluster/cmd/cluster find
	@$(MAKE) --no-print-directory build
	@go run ./test/cluster/cmd/cluster images '$(BIN)'

# The launcher takes a C compiler, for NVML: that of another architecture where there is one.
CC_amd64 ?= x86_64-linux-gnu-gcc
CC_arm64 ?= aarch64-linux-gnu-gcc
compiler = $(if $(filter $1,$(shell go env GOARCH)),$(shell go env CC),$(shell command -v $(CC_$1)))

.PHONY: images
images: ## make the images controller, launcher and requester as OCI layouts in bin/images, with an SBOM of each (ARCHES="amd64 arm64")
	@rm -rf '$(BIN)/programs'
	@$(foreach a,$(ARCHES),$(MAKE) --no-print-directory programs BIN='$(BIN)/programs/$a' GOARCH=$a CC='$(call compiler,$a)' && ) true
	@go run ./deploy/images/make --from '$(BIN)/programs' --to '$(BIN)/images' --version '$(VERSION)' --arch '$(subst $(space),$(comma),$(strip $(ARCHES)))'

# What goes into images, for the architecture GOARCH.
.PHONY: programs
programs: $(if $(CC),$(BIN)/launcher) $(BIN)/modelfetch $(BIN)/podresources $(BIN)/copier $(BIN)/requester $(BIN)/controller

.PHONY: cluster-down
cluster-down: ## end that Kubernetes, and leave nothing of it
	@go run ./test/cluster/cmd/cluster down

.PHONY: cluster-shell
cluster-shell: ## open a shell whose kubectl talks to that Kubernetes
	@go run ./test/cluster/cmd/cluster shell

.PHONY: chart
chart: ## check the chart and pack it into bin/
	@helm=$$(go run ./test/cluster/cmd/cluster helm-path); "$$helm" lint --strict deploy/chart; "$$helm" package deploy/chart -d $(BIN)

# The server of Azure Blob Storage is a program of Node.js.
AZURITE := test/modelservers/node_modules/.package-lock.json
$(AZURITE): test/modelservers/package-lock.json
	npm ci --prefix test/modelservers --ignore-scripts --no-audit --no-fund --silent
	@touch $@

.PHONY: test-models
test-models: $(AZURITE) ## models from servers of S3, Google Cloud Storage, Azure Blob Storage and OCI, which are built or installed first (takes npm)
	$(QUICK_EXIT) $(GOTEST) -race -count=1 -timeout 14m -tags modelservers ./test/modelsources

.PHONY: test-llm-d
test-llm-d: ## the launcher and the chart's values-llm-d.yaml against the code of the llm-d community's controller
	cd test/llmd && $(GOTEST) -count=1 -timeout 10m .

.PHONY: test-cluster
test-cluster: build ## the tests on a real Kubernetes of two nodes, several of which are started for them (LANES=3, KUBERNETES=1.33.5: that release, WRITE_AHEAD=1: requesters are bound before their programs run; takes root)
	go run ./test/cluster/cmd/cluster run --lanes $(LANES) --nodes 2 --audit-policy $(AUDIT) $(GOTEST) -count=1 -timeout 20m -tags cluster ./test/cluster/... ./dualpods/internal/trust/installation

.PHONY: test-cluster-long
test-cluster-long: build ## the same, and those that take minutes
	go run ./test/cluster/cmd/cluster run --lanes $(LANES) --nodes 2 --audit-policy $(AUDIT) $(GOTEST) -count=1 -timeout 60m -tags 'cluster clusterlong' -skip "$$(bash test/ci/long.sh omitted cluster)" ./test/cluster/... ./dualpods/internal/trust/installation

.PHONY: test-cluster-vllm
test-cluster-vllm: build vllm-cpu ## two real models take turns on a real Kubernetes of one node
	go run ./test/cluster/cmd/cluster run --nodes 1 --audit-policy $(AUDIT) $(GOTEST) -count=1 -timeout 30m -tags 'cluster vllm' -run RealModels ./test/cluster/e2e

.PHONY: test-cluster-policies
test-cluster-policies: build ## the chart's NetworkPolicies, on a real Kubernetes that enforces them (takes root, and the packages ipset and iptables)
	go run ./test/cluster/cmd/cluster run --nodes 2 --network-policies $(GOTEST) -count=1 -timeout 20m -tags 'cluster policies' -run NetworkPolicies ./test/cluster/e2e

.PHONY: test-upgrade
test-upgrade: build ## upgrade an installation of an earlier commit, which is built first, while a model answers (BEFORE=commit, takes root)
	@before=$$(mktemp -d); trap 'rm -rf "$$before"' EXIT; git archive '$(BEFORE)' | tar -x -C "$$before"; \
	$(MAKE) --no-print-directory -C "$$before" build BIN="$$before/bin" VERSION='$(BEFORE)'; \
	HOTSEAT_TEST_BEFORE="$$before" go run ./test/cluster/cmd/cluster run --nodes 2 $(GOTEST) -count=1 -timeout 20m -tags 'cluster upgrade' -run EarlierCommit ./test/cluster/e2e

.PHONY: test-sim-rules
test-sim-rules: ## which rows of spec/binding.md the simulation cannot miss (RULE_SEEDS=5000)
	HOTSEAT_TEST_LONG=1 go test -count=1 -timeout 30m -v -run TakingAny ./dualpods/internal/servers/binding

.PHONY: test-all
test-all: lint verify test test-long test-models test-llm-d test-sim-defects test-vllm-long test-vllm-matrix test-cluster-long test-cluster-vllm test-cluster-policies test-upgrade fuzz ## everything that can fail, one after the other: hours (takes root)

CLIENTS := $(HOTSEAT_CACHE)/fetchclients
.PHONY: bench-clients
bench-clients: ## build the S3 server and the S3 client that `make bench` fetches with, in the cache folder
	@mkdir -p '$(CLIENTS)'
	go -C test/modelservers build -o '$(CLIENTS)/' github.com/versity/versitygw/cmd/versitygw
	go -C test/fetchclients build -o '$(CLIENTS)/' github.com/peak/s5cmd/v2 || echo 'NOT BUILT: s5cmd cannot be had; the fetches are timed without it' >&2

.PHONY: bench
bench: bench-clients ## time the launcher against bare baselines, and its fetches beside other clients (ONLY=fetch: those); the tables are spec/benchmarks.md
	go run ./test/bench -clients '$(CLIENTS)' $(if $(ONLY),-only '$(ONLY)')

.PHONY: bench-cluster
bench-cluster: build ## time dual pods on clusters of their own; the table goes to spec/benchmarks.md (takes root)
	go run ./test/cluster/bench -write

.PHONY: bench-gpu
bench-gpu: $(BIN)/launcher ## walk through starts, swaps and failures of the vllm on PATH, on an NVIDIA GPU (WORK=folder for models and results; PYTHON=that of vllm); test/gpu tells more
	@failed=0; for part in small large; do python3 test/gpu/walk.py --part $$part --launcher $(BIN)/launcher --vllm "$$(command -v vllm)" --python $(or $(PYTHON),python3) --work $(or $(WORK),/tmp/hotseat-gpu)/work --out $(or $(WORK),/tmp/hotseat-gpu)/$$part || failed=1; done; exit $$failed

.PHONY: bench-vllm
bench-vllm: vllm-cpu ## time the starts of real vLLM: by hand, by exec, by fork; the table goes to spec/benchmarks.md
	go run ./test/bench -write -vllm '$(HOTSEAT_CACHE)/vllm-cpu'

.PHONY: fuzz
fuzz: ## run each fuzz target (FUZZTIME=20000x)
	@bash test/fuzz.sh $(FUZZTIME)

.PHONY: lint
lint: ## golangci-lint, pinned in go.mod
	go tool golangci-lint run ./...

.PHONY: generate
generate: ## make the generated files again
	go run ./launcher/internal/edges/api/genopenapi spec/launcherapi/openapi.yaml
	go tool controller-gen object crd paths=./spec/v1alpha1 output:crd:dir=deploy/chart/crds
	gofmt -w $$(find dualpods launcher spec test -name '*.go' -not -path 'test/llmd/source/*')

.PHONY: verify
verify: ## fail when a generated file, the OpenAPI document, the formatting or go.mod is not what it should be
	@bash test/verify.sh

.PHONY: clean
clean: ## remove what was built
	rm -rf $(BIN)
