# make help lists the targets.
SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X github.com/fairlead/fairlead/internal/version.stamped=$(VERSION)
TOOLS   := $(CURDIR)/bin/tools

# Tests of namespaces and BGP mostly wait: with three packages at a time, they neither
# starve each other on a small machine, nor leave it idle.
TESTFLAGS ?= -p 3 -timeout 15m
# Packages to test, race or bench; default: all. The comparison with kube-proxy, which it
# builds, is in make test-kube.
PACKAGES  ?=
packages   = $(or $(PACKAGES),$(shell go list ./... | grep -v /lab/bench/kubeproxy))
# Faults in a complete chain take minutes, and run in make test-kube, as do the tests with
# kube-controller-manager, which they build; the demo, the wall-clock test and the rule
# tables with IPVS take minutes, and run in make test-ipvs.
LONG      := '^TestIPVS$$|^TestWallClock$$|^TestManaged|^TestChain$$/^(API|health|slow|no|two)'
# What users install, and which of it is in the image. fairlead-lab is in neither.
INSTALLED := fairlead fairlead-cni fairlead-ipam kubectl-fairlead
IN_IMAGE  := fairlead fairlead-cni fairlead-ipam
# Platforms of the image: make image PLATFORMS="linux/amd64 linux/arm64".
PLATFORMS ?= linux/$(shell go env GOARCH)
# Arguments for fairlead-lab demo and bench: make demo ARGS="--method dsr-nat".
ARGS ?=

# No target is a file.
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 24

# Without the grpcnotrace tag, gRPC, which vdn/store/etcd imports, includes template-based pages:
# these may call any method by name, so that the linker cannot drop any, and fairlead is a
# fifth larger. The linker would drop debug information (-s -w); not generating it saves
# an eighth of the compile time.
go_build = CGO_ENABLED=0 go build -tags grpcnotrace -gcflags=all=-dwarf=false -trimpath -ldflags "$(LDFLAGS)" -o

build: ## build bin/fairlead, the network plugins and the kubectl plug-in; needs only Go
	$(go_build) bin/ $(addprefix ./cmd/,$(INSTALLED))

lab: ## build bin/fairlead-lab (demo, benchmarks, simulator) and the bin/fairlead that it runs; needs only Go
	$(go_build) bin/ ./cmd/fairlead ./cmd/fairlead-lab

refuse: ## build bin/refuse, which runs a command on a kernel that rejects chosen features
	CGO_ENABLED=0 go build -o bin/ ./lab/testkit/refuse/cmd/refuse

demo: ## show the whole system in namespaces of this machine, with real traffic (root)
	$(go_build) bin/ ./cmd/fairlead ./cmd/fairlead-demo
	bin/fairlead-demo demo $(ARGS)

test: ## install the dependencies of the tests, then run all tests (root; PACKAGES=./lab/..., ARGS="-run TestX", VERBOSE=1)
	@scripts/deps.sh test
	@VERBOSE="$(VERBOSE)" RECORD="$(RECORD)" scripts/test.sh $(PACKAGES) -- $(TESTFLAGS) -skip $(LONG) $(ARGS)

BASE   ?= HEAD
BUDGET ?= 60
check: ## test what a change affects, nearest first, as far as 60 s reach (root; BASE=main compares with main, BUDGET=300)
	@scripts/deps.sh test
	@packages=$$(go run ./scripts/affected -base $(BASE) -budget $(BUDGET)); \
	if [[ -z $$packages ]]; then echo "check: no package is affected"; exit; fi; \
	go vet $$packages && scripts/test.sh $$packages -- $(TESTFLAGS) -skip $(LONG) $(ARGS)

test-interop: ## test interoperability with FRR, BIRD, GoBGP and ExaBGP; part of make test (root; ARGS=-update rewrites docs/interop.md)
	scripts/deps.sh interop
	go test -count=1 -v -run '^TestInterop$$' ./lab/interop $(ARGS)

test-bgp-attack: ## attack reflector, router and speaker up to their default limits, with concurrent FRR and BIRD sessions (root; minutes)
	scripts/deps.sh interop
	FAIRLEAD_BGP_ATTACK=1 go test -count=1 -timeout 30m -v -run '^TestAttacksNextToFRRAndBIRD$$' ./lab/interop

test-ipvs: ## run the IPVS tests, in a guest if this kernel has no IPVS (root)
	scripts/deps.sh guest
	go test $(TESTFLAGS) ./lab/uml ./dataplane/ipvs/... ./lab/bench/ipvsbench
	go test $(TESTFLAGS) -run '^TestIPVS$$|^TestWallClock$$' ./lab/e2e/nobgp ./lab/bench/rules

test-kube: ## run the tests that need a real kube-apiserver; builds it the first time
	scripts/kube.sh etcd kube-apiserver
	go test $(TESTFLAGS) $(addsuffix /...,$(wildcard ./api ./controller ./agent/kubectl ./lab/kube ./source/kube ./lab/bench/kubeproxy))

test-outage: ## test an outage of the API server of ten minutes, end to end (root)
	scripts/deps.sh test
	scripts/kube.sh etcd kube-apiserver
	FAIRLEAD_OUTAGE=10m go test -count=1 -timeout 30m -v -run '^TestChain$$/API_server_away' ./lab/kube/chain

test-degraded: ## reject each optional kernel feature (docs/kernel-features.md) and test what must work without it (root; slow)
	scripts/deps.sh test
	FAIRLEAD_REFUSALS=all go test $(TESTFLAGS) -count=1 -timeout 60m -v -run '^TestWithout(Optional|Essential)$$' \
		./dataplane/xdp ./dataplane/dsr ./dataplane/proxy/... ./vdn/enforce/kernel ./router | \
		grep -E '^ *--- |^(ok|FAIL)|refusals.go'

ROUNDS ?= 20
test-failover: ## kill each pair of three VDN controllers under load, with a real etcd of three members (root; ROUNDS=20)
	scripts/deps.sh test
	scripts/kube.sh etcd
	FAIRLEAD_ROUNDS=$(ROUNDS) go test -count=1 -timeout 60m -v -run '^TestFailover$$' ./lab/bench/vdn $(ARGS)

FROM ?=
TO   ?=
test-upgrade: ## upgrade everything from commit FROM to this tree and downgrade it again, under load (root; TO=COMMIT or next-layout, ARGS="-run TestNetworks")
	scripts/deps.sh test
	scripts/kube.sh etcd kube-apiserver
	scripts/test-upgrade.sh "$(FROM)" "$(TO)" $(ARGS)

test-page: ## test the web page of networks in a headless Chromium; installs it the first time
	scripts/deps.sh page
	go test -count=1 -v ./vdn/page $(ARGS)

test-cluster: build ## run Kubernetes' conformance tests of Services on two real nodes (root; ARGS="-proxy nftables" for kube-proxy)
	scripts/deps.sh cluster
	go run ./lab/kube/conformance $(ARGS)

test-install: build image $(TOOLS)/helm ## install Fairlead on two real nodes from the manifests, use it, and remove it (root; ARGS="-by chart")
	scripts/deps.sh cluster
	go run ./lab/kube/install $(ARGS)

test-cni: build image ## test pods on virtually dedicated networks on two real nodes, with fairlead-cni only and with Multus (root)
	scripts/deps.sh cluster
	go run ./lab/kube/vdn $(ARGS)

test-kernels: ## run the kernel-dependent tests on Linux 6.1, 6.12 and the newest of Debian's backports, in virtual machines (ARGS="-update 6.12", RUN=TestTunnel)
	scripts/test-kernels.sh $(ARGS)

test-bare: ## run the README's commands on a minimal Debian with only Go and make (root; ARGS="make test PACKAGES=./lab/...")
	scripts/test-bare.sh $(ARGS)

FUZZTIME ?= 1m
fuzz: ## run all fuzz targets, including packets (root); they share FUZZTIME=1m, in addition to build time (ARGS="-run REGEXP")
	go run ./scripts/fuzzrun -time $(FUZZTIME) $(ARGS) $(PACKAGES)

fuzz-packets: ## fuzz the BPF programs with packets against reference models, until interrupted (root; ARGS="-time 8h -resume", "-targets dsr")
	go run ./lab/testkit/packetfuzz/cmd/packetfuzz -commit "$$(git describe --always --dirty)" $(ARGS)

fuzz-seeded: ## measure how long the packet fuzzer takes to find seeded bugs in the BPF programs (root; ARGS="-limit 10m -run NAME")
	scripts/deps.sh lint
	go run ./lab/testkit/packetfuzz/cmd/seeded $(ARGS)

race: ## run the tests with the race detector; needs a C compiler
	go test -race $(TESTFLAGS) $(packages)

lint: ## check formatting, common mistakes, vulnerabilities, and that generated files are current
	scripts/deps.sh lint
	scripts/lint.sh "$(TOOLS)"

generate: ## rebuild the BPF objects and their Go bindings
	scripts/deps.sh lint
	go generate ./...

helm = $(TOOLS)/helm
$(helm): tools/helm/go.mod
	cd tools/helm && GOBIN=$(TOOLS) go install tool

manifests: $(helm) ## render deploy/manifests from the Helm chart; builds helm the first time, which takes minutes
	scripts/manifests.sh $(helm) deploy/manifests

lint-deploy: $(helm) ## check the Helm chart, and that deploy/manifests matches it
	scripts/lint-deploy.sh $(helm)

image: ## build an OCI image of the binary and the network plugins, and its SBOM, in out/image, without Docker
	@set -- ; for p in $(PLATFORMS); do \
		dir=$(CURDIR)/out/binaries/$${p/\//-}; rm -rf "$$dir"; mkdir -p "$$dir"; \
		GOOS=$${p%/*} GOARCH=$${p#*/} $(go_build) "$$dir/" $(addprefix ./cmd/,$(IN_IMAGE)); \
		set -- "$$@" "$$p=$$dir"; \
	done; \
	cd tools/image && go run . -o $(CURDIR)/out/image -version $(VERSION) "$$@"

bench: ## run the benchmarks and write the results to out/bench
	mkdir -p out/bench
	go test -run '^$$' -bench . -benchmem $(packages) | tee out/bench/go.txt

bench-dataplane: lab ## measure the BPF programs per packet, compared with goals (root)
	bin/fairlead-lab bench dataplane $(ARGS)

PEER_KATRAN ?=
bench-peers: lab ## measure the balancer's programs next to Katran's, built from the sources in PEER_KATRAN=DIR with clang (root)
	bin/fairlead-lab bench peers $(if $(PEER_KATRAN),--katran $(PEER_KATRAN)) $(ARGS)

bench-live: lab ## measure the balancer on live frames over a veth (root)
	bin/fairlead-lab bench live $(ARGS)

bench-survival: lab ## count which of 10,000 connections break during changes, for each connection consistency (root)
	bin/fairlead-lab bench survival $(ARGS)

bench-ipvs: lab ## measure how long adding one Service to 50,000 takes, with IPVS and iptables (root)
	scripts/deps.sh guest
	bin/fairlead-lab bench ipvs $(ARGS)

bench-kube: lab ## measure the service proxy with 50,000 Services, compared with kube-proxy (root)
	bin/fairlead-lab bench kube $(ARGS)

bench-rules: lab ## compare implementations of Services: iptables, a search tree of it, nftables, IPVS, eBPF (root)
	bin/fairlead-lab bench rules $(ARGS)

bench-ecmp: lab ## measure the routes between balancers and router: delays, flows, losses, throughput (root)
	bin/fairlead-lab bench ecmp $(ARGS)

bench-cni: build lab ## measure pod networks between two sites: macvlan, host-device, bridge, overlays (root)
	bin/fairlead-lab bench cni $(ARGS)

bench-sim: lab ## measure the simulator, compared with ns-2, and check that both give the same results
	scripts/deps.sh sim
	bin/fairlead-lab bench sim $(ARGS)

$(TOOLS)/gobgpd: tools/gobgp/go.mod
	cd tools/gobgp && GOBIN=$(TOOLS) go install tool

papers: build lab $(TOOLS)/gobgpd ## reproduce the figures and tables of the five papers, with a verdict each, into out/papers (root; ARGS="--only 000/fig13")
	scripts/deps.sh guest
	scripts/deps.sh cluster
	scripts/deps.sh web
	scripts/deps.sh interop
	bin/fairlead-lab papers $(ARGS)

docs: ## build the documentation site into out/site
	scripts/docs.sh build

docs-serve: ## serve the documentation site on http://127.0.0.1:8000, with live reload
	scripts/docs.sh serve

clean: ## remove all build results
	rm -rf bin out
