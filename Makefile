# hotseat: `make run` demonstrates it, `make test` tests it, `make help` lists all targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BIN := $(CURDIR)/bin
# With -trimpath, a fresh clone finds in Go's build cache what another clone has built.
# The compiler spends a sixth less processor time when it collects its garbage less often;
# what is compiled, and Go's build cache, are the same.
COMPILING := '-toolexec=env GOGC=400'
export GOFLAGS := $(strip $(filter-out -trimpath $(COMPILING),$(GOFLAGS)) -trimpath $(COMPILING))
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X hotseat.dev/hotseat/launcher/internal/edges/version.Version=$(VERSION)
# The folder of real vLLM and of the built Kubernetes, outside the repository.
HOTSEAT_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/hotseat
run vllm-cpu llama-cpp test-llama-cpp test-vllm test-vllm-long bench-vllm chart cluster-up test-cluster test-cluster-long test-cluster-vllm test-cluster-llama-cpp test-cluster-policies test-cluster-podgroups test-cluster-volcano test-upgrade test-llm-d test-clients bench-cluster: export HOTSEAT_CACHE := $(HOTSEAT_CACHE)
# A release of vLLM for `make vllm-cpu` and `make test-vllm`, such as VLLM=0.32.0. Empty:
# the release that test/vllm-cpu locks. Each other release has a folder of its own.
VLLM ?=
LOCKED_VLLM := $(shell sed -n 's/^locked_release=//p' test/vllm-cpu/release.sh)
OTHER_VLLM := $(filter-out $(LOCKED_VLLM),$(VLLM))
vllm-cpu test-vllm test-vllm-long: export VLLM := $(VLLM)
vllm-cpu test-vllm test-vllm-long: export HOTSEAT_CACHE := $(HOTSEAT_CACHE)$(if $(OTHER_VLLM),/releases/$(OTHER_VLLM))
# The releases that `make test-vllm-matrix` tries: the locked one, the newest one that is
# packaged for CPUs, and older ones. engine.TriedReleases has the same list.
RELEASES ?= $(LOCKED_VLLM) 0.32.0 0.26.0 0.22.1
# The engine of `make run`: enginesim, vllm-cpu, or auto, which takes the vllm on PATH if
# there is one and the machine has a GPU, and else enginesim.
ENGINE ?= auto
# TOUR=only ends `make run` after the walk.
TOUR ?= stay
# THIRD=HASH runs a third of the long tests and of the fuzz targets, which the hash picks;
# empty: all of them.
THIRD ?=
test-cluster-long test-vllm-long test-sim-defects test-vllm-matrix fuzz: export THIRD := $(THIRD)
# `go test`. In CI it also writes reports, and runs a failed test once more.
GOTEST := bash $(CURDIR)/test/ci/gotest.sh

# How many inputs each fuzz target tries in `make fuzz` (or how long, as 1m).
FUZZTIME ?= 20000x

# The architectures of `make images`.
ARCHES ?= amd64 arm64
comma := ,
space := $(subst ,, )

# The audit policy of the API server in the end-to-end tests.
AUDIT := test/cluster/e2e/testdata/audit.yaml

# The commit from which `make test-upgrade` upgrades. The default is the last commit before
# the packages were arranged in layers.
BEFORE ?= 71adcc2

# A release of Kubernetes for the test clusters, as KUBERNETES=1.33.5, which is downloaded
# and built first; empty: the one that test/cluster/kube/go.mod names.
KUBERNETES ?=
cluster-up test-cluster test-cluster-long test-cluster-vllm test-cluster-llama-cpp test-cluster-policies test-cluster-podgroups test-cluster-volcano test-upgrade: export HOTSEAT_KUBERNETES := $(KUBERNETES)

# How many nodes `make cluster-up` starts; 0: only the API server.
NODES ?= 1

# How many clusters `make test-cluster` starts to run tests in parallel; 0: as many as this
# machine has resources for.
LANES ?= 0

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | while IFS=$$'\t' read -r t d; do printf '  %-21s %s\n' "$$t" "$$d"; done

.PHONY: build
build: $(BIN)/launcher $(BIN)/modelfetch $(BIN)/podresources $(BIN)/copier $(BIN)/requester $(BIN)/controller $(BIN)/frontdoor $(BIN)/enginesim ## build the programs into bin/

# The pages of a program count as its memory. With the tag grpcnotrace, no code looks up
# methods by name, so the linker drops unused methods: a quarter of the controller, a third
# of modelfetch.
#
# The targets are phony: go build tracks all inputs, embedded files too, and does nothing if
# none has changed.
BUILDING := bash test/building.sh
.PHONY: $(BIN)/launcher $(BIN)/modelfetch $(BIN)/podresources $(BIN)/copier $(BIN)/requester $(BIN)/requester-nvml $(BIN)/controller $(BIN)/frontdoor $(BIN)/enginesim
$(BIN)/launcher:
	@CGO_ENABLED=1 $(BUILDING) launcher go build -trimpath -ldflags '$(LDFLAGS)' -o $@ ./launcher/cmd/launcher

# Static, because it is copied into images of users. Google's client uses HTTP here. Without
# its gRPC modules the program starts in half the time, and is a quarter smaller.
$(BIN)/modelfetch:
	@CGO_ENABLED=0 $(BUILDING) modelfetch go build -trimpath -tags disable_grpc_modules,grpcnotrace -ldflags '-s -w' -o $@ ./launcher/cmd/modelfetch

# Static, for images without a C library. NVML needs a C library: see requester-nvml.
$(BIN)/requester:
	@CGO_ENABLED=0 $(BUILDING) requester go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o $@ ./dualpods/cmd/requester

$(BIN)/podresources:
	@CGO_ENABLED=0 $(BUILDING) podresources go build -trimpath -tags grpcnotrace -ldflags '-s -w -X main.version=$(VERSION)' -o $@ ./dualpods/cmd/podresources

$(BIN)/copier:
	@CGO_ENABLED=0 $(BUILDING) copier go build -trimpath -ldflags '-s -w' -o $@ ./dualpods/cmd/copier

$(BIN)/controller:
	@CGO_ENABLED=0 $(BUILDING) controller go build -trimpath -tags grpcnotrace -ldflags '-s -w -X main.version=$(VERSION)' -o $@ ./dualpods/cmd/controller

$(BIN)/frontdoor:
	@CGO_ENABLED=0 $(BUILDING) frontdoor go build -trimpath -ldflags '-s -w' -o $@ ./dualpods/cmd/frontdoor

$(BIN)/requester-nvml:
	@CGO_ENABLED=1 $(BUILDING) requester-nvml go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o $@ ./dualpods/cmd/requester

$(BIN)/enginesim:
	@CGO_ENABLED=0 $(BUILDING) enginesim go build -trimpath -ldflags '-s -w' -o $@ ./test/enginesim

.PHONY: run
run: $(BIN)/launcher $(if $(filter vllm-cpu,$(ENGINE)),,$(BIN)/enginesim) ## start a launcher, walk through create, chat and swap, and leave it running (ENGINE=vllm-cpu: with real vLLM; TOUR=only: end after the walk)
	@ENGINE='$(ENGINE)' TOUR='$(TOUR)' BIN='$(BIN)' bash examples/tour.sh

# Tests that run built programs. `go test` does not know that their results depend on these
# programs, and would return cached results. The race detector does not check the programs.
DRIVING := test/e2e test/guide test/conformance deploy/images

# A program with the race detector sleeps for a second before it exits, to find races of
# goroutines that still run. Tests leave hardly any, so a tenth of a second is enough. The
# caller's GORACE takes precedence.
QUICK_EXIT := GORACE="atexit_sleep_ms=100 $${GORACE:-}"

# Packages with the libraries of clouds, which take minutes to compile for the race detector: `make
# test-models` runs their tests with it.
CLOUDS := launcher/cmd/modelfetch launcher/internal/models/fetch launcher/internal/models/modelsource

# Tests of the simulations that only check types, in one goroutine.
UNRACED := ^TestEachDefectCanBeBroughtBack$$

# Tests of the simulations that run few schedules with the race detector, and many without.
FEWER_RACED := NoSchedule|NoComposed|UndisturbedActuation|UnbindingAt|PastItsDeadline|NotSelectedAnyMore|ASeedGives|WhatIsSimulated

.PHONY: test
test: ## run the tests that need neither real vLLM, Kubernetes nor model servers (not test-long, test-llm-d); the race detector checks all but the built programs and the packages with the libraries of clouds
	$(QUICK_EXIT) $(GOTEST) -race -p 4 -timeout 14m -skip '$(UNRACED)' $$(go list ./... | grep -vE '/($(subst $(space),|,$(DRIVING) $(CLOUDS)))$$')
	$(GOTEST) -timeout 14m $(addprefix ./,$(CLOUDS))
	$(GOTEST) -count=1 -timeout 14m -parallel 4 $(addprefix ./,$(DRIVING))
	$(GOTEST) -run '$(FEWER_RACED)|$(UNRACED)' ./dualpods/internal/model/decide ./dualpods/internal/roles/gang ./dualpods/internal/servers/binding ./dualpods/internal/simulation/... ./launcher/internal/core/simulation ./launcher/internal/core/scheduler

.PHONY: test-sim
test-sim: ## run SEEDS=100000 schedules of each simulation, beginning with seed FROM=1
	GOGC=400 SEEDS=$(or $(SEEDS),100000) FROM=$(or $(FROM),1) go test -count=1 -timeout 0 -v -run NoSchedule ./launcher/internal/core/simulation ./launcher/internal/core/scheduler ./dualpods/internal/model/decide ./dualpods/internal/roles/gang ./dualpods/internal/roles/groups ./dualpods/internal/servers/binding ./dualpods/internal/simulation/...

.PHONY: test-sim-defects
test-sim-defects: ## check that the simulations find each known defect within SEEDS=20000 schedules (DEFECT=part of a name; WRITE=1: save the seeds that find them)
	HOTSEAT_TEST_LONG=1 SEEDS=$(or $(SEEDS),20000) WRITE=$(WRITE) DEFECT="$(or $(DEFECT),$$(bash test/ci/long.sh pattern defects))" $(GOTEST) -count=1 -timeout 0 -p 1 -v -run EachDefectIsFound ./launcher/internal/core/simulation ./launcher/internal/core/scheduler ./dualpods/internal/model/decide ./dualpods/internal/roles/gang ./dualpods/internal/roles/groups ./dualpods/internal/simulation/...

.PHONY: test-long
test-long: ## run the tests that take minutes: 1,000 cycles of create and delete, and twenty models on two GPUs
	HOTSEAT_TEST_LONG=1 $(GOTEST) -count=1 -timeout 14m -run 'ManyCycles|TwentyModels' ./test/e2e

.PHONY: vllm-cpu
vllm-cpu: ## set up real vLLM for CPUs in the cache folder
	@bash test/vllm-cpu/setup.sh

.PHONY: llama-cpp
llama-cpp: ## set up llama.cpp's llama-server for CPUs and tiny models in the cache folder
	@bash test/llama-cpp/setup.sh

.PHONY: test-llama-cpp
test-llama-cpp: llama-cpp ## test with real llama-server
	$(GOTEST) -count=1 -timeout 5m -tags llamacpp -run '^TestLlama' ./launcher/internal/engines/engine ./test/e2e

.PHONY: test-vllm
test-vllm: vllm-cpu ## test the life of an instance with real vLLM, by exec and by fork (VLLM=0.32.0: with that release)
	$(GOTEST) -count=1 -parallel 2 -timeout 20m -tags vllm -run '^TestARelease$$' ./test/vllm

.PHONY: test-vllm-long
test-vllm-long: vllm-cpu ## run all tests with real vLLM (VLLM=0.32.0: with that release, without the tests that need recordings of the locked one)
	$(GOTEST) -count=1 -p 1 -parallel 2 -timeout 40m -tags vllm -run "^TestARelease\$$|$$(bash test/ci/long.sh pattern vllm)" $(if $(OTHER_VLLM),-skip TestAForkedStartImportsHardlyAnything ./test/vllm,./test/vllm/... ./test/conformance/... ./test/helpers/hubserver ./launcher/internal/engines/engine/...)

.PHONY: test-vllm-matrix
test-vllm-matrix: ## test the life of an instance with several releases of vLLM, each set up and removed (RELEASES="0.32.0 0.18.1"; KEEP=1: do not remove them; SETUP=only: only set them up)
	@bash test/vllm-cpu/matrix.sh $(if $(THIRD),$$(RELEASES='$(filter-out $(LOCKED_VLLM),$(RELEASES))' bash test/ci/long.sh picked releases),$(RELEASES))

.PHONY: cluster-up
cluster-up: ## start a real Kubernetes on this machine, with simulated GPUs (NODES=2, KUBERNETES=1.33.5: that release; needs root)
	@go run ./test/cluster/cmd/cluster up --nodes $(NODES)

.PHONY: cluster-images
cluster-images: ## build the images and load them into the Kubernetes of cluster-up
	@go run ./test/cluster/cmd/cluster find
	@$(MAKE) --no-print-directory build
	@go run ./test/cluster/cmd/cluster images '$(BIN)'

# The launcher needs a C compiler, for NVML. For another architecture, a cross compiler is
# used if there is one.
CC_amd64 ?= x86_64-linux-gnu-gcc
CC_arm64 ?= aarch64-linux-gnu-gcc
compiler = $(if $(filter $1,$(shell go env GOARCH)),$(shell go env CC),$(shell command -v $(CC_$1)))

.PHONY: images
images: ## build the images controller, launcher and requester as OCI layouts in bin/images, each with an SBOM (ARCHES="amd64 arm64")
	@rm -rf '$(BIN)/programs'
	@$(foreach a,$(ARCHES),$(MAKE) --no-print-directory programs BIN='$(BIN)/programs/$a' GOARCH=$a CC='$(call compiler,$a)' && ) true
	@go run ./deploy/images/make --from '$(BIN)/programs' --to '$(BIN)/images' --version '$(VERSION)' --arch '$(subst $(space),$(comma),$(strip $(ARCHES)))'

# The programs of the images, for the architecture GOARCH.
.PHONY: programs
programs: $(if $(CC),$(BIN)/launcher) $(BIN)/modelfetch $(BIN)/podresources $(BIN)/copier $(BIN)/requester $(BIN)/controller $(BIN)/frontdoor

.PHONY: cluster-down
cluster-down: ## stop the Kubernetes of cluster-up and remove its nodes and objects; the built Kubernetes and Helm stay in the cache folder
	@go run ./test/cluster/cmd/cluster down

.PHONY: cluster-shell
cluster-shell: ## open a shell whose kubectl and helm talk to the Kubernetes of cluster-up
	@go run ./test/cluster/cmd/cluster shell

.PHONY: chart
chart: ## check the chart and package it into bin/
	@helm=$$(go run ./test/cluster/cmd/cluster helm-path); "$$helm" lint --strict deploy/chart; "$$helm" package deploy/chart -d $(BIN)

# Azurite, the test server for Azure Blob Storage, runs on Node.js.
AZURITE := test/modelservers/node_modules/.package-lock.json
$(AZURITE): test/modelservers/package-lock.json
	npm ci --prefix test/modelservers --ignore-scripts --no-audit --no-fund --silent
	@touch $@

.PHONY: test-models
test-models: $(AZURITE) ## test fetches from servers of S3, Google Cloud Storage, Azure Blob Storage and OCI, which are installed first, and the packages that fetch with the race detector (needs npm)
	$(QUICK_EXIT) $(GOTEST) -race -timeout 14m $(addprefix ./,$(CLOUDS))
	$(GOTEST) -count=1 -timeout 14m -tags modelservers ./test/modelsources

# The OpenAI client for JavaScript, and the clients of OpenAI, Anthropic and Ollama for Python with what they need.
OPENAI_JS := test/clients/node_modules/.package-lock.json
$(OPENAI_JS): test/clients/package-lock.json
	npm ci --prefix test/clients --ignore-scripts --no-audit --no-fund --silent
	@touch $@

OPENAI_PYTHON := $(HOTSEAT_CACHE)/clients/.installed
$(OPENAI_PYTHON): test/clients/requirements.lock
	@rm -rf '$(@D)' && mkdir -p '$(@D)' && python3 -m venv '$(@D)'
	'$(@D)/bin/python' -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r $<
	@touch '$@'

.PHONY: test-clients
test-clients: $(OPENAI_JS) $(OPENAI_PYTHON) ## test the front door with the official clients of OpenAI (Python, JavaScript), Anthropic and Ollama (Python), which are installed first (needs npm and Python 3.11)
	$(GOTEST) -count=1 -timeout 10m -tags clients ./test/clients

.PHONY: test-llm-d
test-llm-d: ## test the launcher and the chart's values-llm-d.yaml against the code of the llm-d community's controller
	cd test/llmd && $(GOTEST) -count=1 -timeout 10m .

.PHONY: test-cluster
test-cluster: build ## run the tests on a real Kubernetes; the target starts several clusters of two nodes (LANES=3, KUBERNETES=1.33.5: that release; WRITE_AHEAD=0: bind requesters after their programs run; needs root)
	go run ./test/cluster/cmd/cluster run --lanes $(LANES) --nodes 2 --audit-policy $(AUDIT) $(GOTEST) -count=1 -timeout 20m -tags cluster ./test/cluster/... ./dualpods/internal/trust/installation

.PHONY: test-cluster-long
test-cluster-long: build ## run the same tests and those that take minutes (needs root)
	go run ./test/cluster/cmd/cluster run --lanes $(LANES) --nodes 2 --audit-policy $(AUDIT) $(GOTEST) -count=1 -timeout 60m -tags 'cluster clusterlong' -skip "$$(bash test/ci/long.sh omitted cluster)" ./test/cluster/... ./dualpods/internal/trust/installation

.PHONY: test-cluster-vllm
test-cluster-vllm: build vllm-cpu ## test real models on a real Kubernetes of two nodes: two that take turns, and one of two ranks (needs root)
	go run ./test/cluster/cmd/cluster run --nodes 2 --audit-policy $(AUDIT) $(GOTEST) -count=1 -timeout 30m -tags 'cluster vllm' -run TestRealModel ./test/cluster/e2e

.PHONY: test-cluster-llama-cpp
test-cluster-llama-cpp: build llama-cpp ## test a Model whose standby is real llama-server, on a real Kubernetes of two nodes (needs root)
	go run ./test/cluster/cmd/cluster run --nodes 2 --audit-policy $(AUDIT) $(GOTEST) -count=1 -timeout 20m -tags 'cluster llamacpp' -run TestLlamaServer ./test/cluster/e2e

.PHONY: test-cluster-policies
test-cluster-policies: build ## test the chart's NetworkPolicies on a real Kubernetes that enforces them (needs root, ipset and iptables)
	go run ./test/cluster/cmd/cluster run --nodes 2 --network-policies $(GOTEST) -count=1 -timeout 20m -tags 'cluster policies' -run NetworkPolicies ./test/cluster/e2e

.PHONY: test-cluster-podgroups
test-cluster-podgroups: build ## test groups that Kubernetes' own scheduler places by PodGroups, with the feature gate GenericWorkload (needs root)
	go run ./test/cluster/cmd/cluster run --nodes 2 --pod-groups --audit-policy $(AUDIT) $(GOTEST) -count=1 -timeout 20m -tags 'cluster podgroups' -run KubernetesPlaces ./test/cluster/e2e

.PHONY: test-cluster-volcano
test-cluster-volcano: build ## test groups that Volcano's own scheduler places, which is built first (needs root)
	go run ./test/cluster/cmd/cluster run --nodes 2 --audit-policy $(AUDIT) $(GOTEST) -count=1 -timeout 40m -tags 'cluster volcano' -run VolcanoPlaces ./test/cluster/e2e

.PHONY: test-upgrade
test-upgrade: build ## upgrade an installation of an earlier commit while a model answers (BEFORE=commit; needs root)
	@before=$$(mktemp -d); trap 'rm -rf "$$before"' EXIT; git archive '$(BEFORE)' | tar -x -C "$$before"; \
	$(MAKE) --no-print-directory -C "$$before" build BIN="$$before/bin" VERSION='$(BEFORE)'; \
	HOTSEAT_TEST_BEFORE="$$before" go run ./test/cluster/cmd/cluster run --nodes 2 $(GOTEST) -count=1 -timeout 20m -tags 'cluster upgrade' -run EarlierCommit ./test/cluster/e2e

.PHONY: test-sim-rules
test-sim-rules: ## remove each row of spec/binding.md in turn, and check that the simulation then fails (RULE_SEEDS=5000)
	HOTSEAT_TEST_LONG=1 go test -count=1 -timeout 30m -v -run TakingAny ./dualpods/internal/servers/binding

.PHONY: test-all
test-all: lint verify test test-long test-models test-clients test-llm-d test-sim-defects test-llama-cpp test-vllm-long test-vllm-matrix test-cluster-long test-cluster-vllm test-cluster-llama-cpp test-cluster-policies test-cluster-podgroups test-cluster-volcano test-upgrade fuzz ## run all tests but test-sim and test-sim-rules, one target after the other; takes hours (needs root)

CLIENTS := $(HOTSEAT_CACHE)/fetchclients
.PHONY: bench-clients
bench-clients: ## build the S3 server and the S3 client of `make bench`, in the cache folder
	@mkdir -p '$(CLIENTS)'
	go -C test/modelservers build -o '$(CLIENTS)/' github.com/versity/versitygw/cmd/versitygw
	go -C test/fetchclients build -o '$(CLIENTS)/' github.com/peak/s5cmd/v2 || echo 'NOT BUILT: s5cmd cannot be had; the fetches are timed without it' >&2

.PHONY: bench
bench: bench-clients llama-cpp ## time the launcher beside bare baselines, and its fetches beside other clients, and print the tables of spec/benchmarks.md (ONLY=fetch: only the fetches)
	go run ./test/bench -clients '$(CLIENTS)' $(if $(ONLY),-only '$(ONLY)')

.PHONY: bench-cluster
bench-cluster: build ## time dual pods on clusters of their own, and write the table in spec/benchmarks.md (needs root)
	go run ./test/cluster/bench -write

.PHONY: bench-gpu
bench-gpu: $(BIN)/launcher ## time starts, swaps and failures with the vllm on PATH, on an NVIDIA GPU (WORK=folder for models and results; PYTHON=interpreter of vllm); see test/gpu
	@failed=0; for part in small large; do python3 test/gpu/walk.py --part $$part --launcher $(BIN)/launcher --vllm "$$(command -v vllm)" --python $(or $(PYTHON),python3) --work $(or $(WORK),/tmp/hotseat-gpu)/work --out $(or $(WORK),/tmp/hotseat-gpu)/$$part || failed=1; done; exit $$failed

.PHONY: bench-vllm
bench-vllm: vllm-cpu ## time starts and swaps of real vLLM on the CPU, and write the tables in spec/benchmarks.md
	go run ./test/bench -write -vllm '$(HOTSEAT_CACHE)/vllm-cpu'

.PHONY: fuzz
fuzz: ## run each fuzz target (FUZZTIME=20000x)
	@bash test/fuzz.sh $(FUZZTIME)

.PHONY: lint
lint: ## run golangci-lint, pinned in go.mod
	go tool golangci-lint run ./...

.PHONY: generate
generate: ## generate the generated files again
	go run ./launcher/internal/edges/api/genopenapi spec/launcherapi/openapi.yaml
	go tool controller-gen object crd paths=./spec/v1alpha1 output:crd:dir=deploy/chart/crds
	go run ./spec/externalscaler/gen spec/externalscaler
	WRITE=1 go test -count=1 -run TestSpecHasTheTables ./dualpods/internal/servers/decide
	gofmt -w $$(find dualpods launcher spec test -name '*.go' -not -path 'test/llmd/source/*')

.PHONY: verify
verify: ## fail if a generated file is stale, a Go file unformatted, a go.mod untidy, a table longer than 25 rows, or a merge conflict or an ignored file is in git
	@bash test/verify.sh

.PHONY: clean
clean: ## remove the folder bin
	rm -rf $(BIN)
