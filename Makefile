# The commands of this repository; `make help` lists them.

GO          ?= go
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS     := -X main.version=$(VERSION)
FUZZTIME    ?= 20s
SOAKTIME    ?= 10m
ARGS        ?=
RUN         ?= .

# -buildvcs=false: the version comes from LDFLAGS, and a checkout owned by somebody else must build too.
export GOFLAGS := -buildvcs=false $(filter-out -buildvcs%,$(GOFLAGS))

.DEFAULT_GOAL := help
.PHONY: help build demo test lint fmt unit integration clients gameday fuzz limits versions soak bench clean

help: ## Show this list
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo '  ARGS="…" is passed to demo, fuzz and bench; RUN=REGEX limits unit, integration, clients and fuzz to the tests that match.'

build: ## Build bin/mirrorgate
	$(GO) build -ldflags "$(LDFLAGS)" -o bin/mirrorgate ./cmd/mirrorgate

demo: build ## Show a live mirror; no Kafka needed (ARGS="--duration 20s" for scripts)
	bin/mirrorgate demo $(ARGS)

test: lint unit integration ## Everything: lint, unit tests, tests on real Kafka (needs Java 17, Maven, Python 3)

lint: ## Check formatting, go vet and staticcheck
	@files=$$(gofmt -l .); \
	if [ -n "$$files" ]; then echo "not formatted (make fmt):"; echo "$$files"; exit 1; fi
	$(GO) vet ./...
	$(GO) vet -tags clients ./test/clients
	$(GO) vet -tags gameday ./test/gameday
	$(GO) run $(STATICCHECK) ./...
	$(GO) run $(STATICCHECK) -tags clients ./test/clients
	$(GO) run $(STATICCHECK) -tags gameday ./test/gameday

fmt: ## Format all Go files
	gofmt -l -w .

unit: ## Run the unit tests, with the race detector
	$(GO) run ./test/strict -unit -race -run '$(RUN)' -timeout 60m $$($(GO) list ./... | grep -v '/test/')

integration: ## Run the tests on real Kafka
	$(GO) run ./test/strict -run '$(RUN)' -p 1 -timeout 120m ./test/...

clients: ## Try every client library and Kafka's tools directly and through a gateway (docs/clients.md)
	$(GO) test -tags clients -count 1 -timeout 0 -v -run '$(RUN)' ./test/clients

gameday: ## Kill a source, fail over, fail back and cut over by docs/runbook.md under two applications; then wake 100 zombies
	$(GO) test -tags gameday -count 1 -timeout 0 -v -run '^TestGameDay$$' ./test/gameday
	MIRRORGATE_ZOMBIES=100 $(GO) test -count 1 -timeout 0 -v -run '^TestZombie$$' ./test/lifecycle

fuzz: ## Run every fuzz test for FUZZTIME (20s, or a number of executions: 600000x) and count its executions; ARGS="-keep 20" keeps inputs
	$(GO) run ./test/fuzz -time $(FUZZTIME) -run '$(RUN)' $(ARGS)

versions: ## Run the tests on destinations of every supported release
	MIRRORGATE_VERSIONS=all $(GO) test -count 1 -timeout 60m -v -run '^TestDestinations$$' ./test/versions

limits: ## Run the tests of limits with the numbers that are promised (10,000 connections, 50,000 partitions)
	MIRRORGATE_LIMITS=full $(GO) test -count 1 -timeout 30m -v ./test/limits

soak: ## Mirror under crashes and faults for SOAKTIME (10m), then tell random stories for as long
	MIRRORGATE_SOAK=$(SOAKTIME) $(GO) test -count 1 -timeout 0 -v -run '^TestSoak$$' ./test/integration
	MIRRORGATE_METAMORPHIC=$(SOAKTIME) $(GO) test -count 1 -timeout 0 -v -run '^TestMetamorphic$$' ./test/metamorphic

bench: build ## Measure against MirrorMaker 2 on the same data (ARGS="--quick")
	$(GO) run ./test/bench --mirrorgate bin/mirrorgate $(ARGS)

clean: ## Remove what was built
	rm -rf bin dist out
	$(GO) clean -testcache
