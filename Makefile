# The commands of this repository. `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
MODEL   ?= qwen2.5-coder-0.5b
EMBED   ?= all-minilm-l6-v2
PORT    ?= 8000
PREFIX  ?= /usr/local
DESTDIR ?=
BOX_PORT      ?= 8443
BOX_HTTP_PORT ?= 8080
GOFLAGS_RELEASE := -trimpath -ldflags '-s -w -X main.version=$(VERSION)'
TOOLS   := $(shell echo "$${XDG_CACHE_HOME:-$$HOME/.cache}")/1bit/tools
LINT    := $(TOOLS)/golangci-lint-v2.15.0
export CGO_ENABLED ?= 0

# every package of ours; the race detector alone needs cgo
PKGS := ./...

# what goes on without an embedding model when there is none to be had
PULL_EMBED = : > bin/.embed; [ -z '$(EMBED)' ] || bin/1bit model pull '$(EMBED)' > bin/.embed || { : > bin/.embed; echo "note: without the embedding model $(EMBED) there is no /v1/embeddings; the chat model is served all the same" >&2; }

.PHONY: help
help: ## list the targets
	@b= r=; [ ! -t 1 ] || { b=$$'\e[1m'; r=$$'\e[0m'; }; \
		awk -F':.*## ' -v b="$$b" -v r="$$r" '/^[a-z0-9-]+:.*## /{printf "  %s%-14s%s %s\n", b, $$1, r, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## install what building needs (Go, git); says what it cannot
	@bash e2e/setup.sh build

.PHONY: laya
laya: setup ## build the built-in classifier and the policy as modules, for the binary to carry
	@bash extensions/build.sh built

.PHONY: laya-train
laya-train: ## make the classifier's weights again: DATA=folder with public-prompts.jsonl.gz (extensions/laya/CARD.md)
	go run ./extensions/laya/train --data '$(DATA)'

.PHONY: build
build: setup laya ## build bin/1bit
	@[ -x bin/1bit ] || echo "building bin/1bit; the first time takes a minute or two"
	go build $(GOFLAGS_RELEASE) -o bin/1bit ./appliance

.PHONY: run
run: build ## obtain the default models and serve them (MODEL=smollm2 for the small chat model, EMBED= for no embeddings, PORT=8000)
	@bash e2e/setup.sh fetch
	@bin/1bit model pull --fallback smollm2 $(MODEL) > bin/.model
	@$(PULL_EMBED)
	@set -- -m "$$(cat bin/.model)" --port $(PORT); \
		[ ! -s bin/.embed ] || set -- "$$@" --embed "$$(cat bin/.embed)"; \
		exec bin/1bit serve "$$@"

.PHONY: box
box: build ## start a box on high ports: HTTPS on BOX_PORT=8443, trust page on BOX_HTTP_PORT=8080, state in ~/.local/state/1bit
	@bash e2e/setup.sh fetch
	@bin/1bit model pull --fallback smollm2 $(MODEL) > bin/.model
	@$(PULL_EMBED)
	@exec bin/1bit appliance --port $(BOX_PORT) --http-port $(BOX_HTTP_PORT)

.PHONY: test
test: setup ## everything a change must pass: format, vet for every system, unit tests, end-to-end tests
	@bash e2e/test.sh quick

.PHONY: test-all
test-all: setup ## the slow rest: large models, the reference server, fuzzing, the ten-minute soak
	@bash e2e/test.sh all

.PHONY: unit
unit: ## unit tests only (need SmolLM2 and MiniLM: `bin/1bit model pull smollm2`, `bash e2e/minilm.sh`)
	go test $(PKGS)

.PHONY: e2e
e2e: build ## end-to-end tests only
	@bash e2e/test.sh e2e

.PHONY: e2e-device
e2e-device: build ## try a device of this box: DEVICE=vulkan MODEL=/models/some.gguf [LLAMA_SERVER=PATH]; e2e/device.sh has the rest
	@DEVICE='$(DEVICE)' MODEL='$(MODEL)' LLAMA_SERVER='$(LLAMA_SERVER)' bash e2e/device.sh

.PHONY: race
race: laya ## unit tests under the race detector (needs a C compiler)
	CGO_ENABLED=1 go test -race -short -timeout 40m $$(go list $(PKGS) | grep -v '/e2e')

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (default 30s)
	@bash e2e/fuzz.sh

.PHONY: bench
bench: ## micro-benchmarks of the kernels
	go test -run '^$$' -bench . ./engine/tensor

.PHONY: bench-engine
bench-engine: build ## the engine beside llama-server: same file, threads and context; ratios of interleaved medians
	@bash e2e/test.sh bench-engine

.PHONY: bench-embed
bench-embed: build ## the engine's embeddings beside llama-server's: texts of 128 tokens a second on the same file
	@bash e2e/test.sh bench-embed

.PHONY: bench-rag
bench-rag: setup ## the document store: speed beside sqlite-vec, then what searches find of a labelled set, which has bars
	@bash e2e/test.sh bench-rag

.PHONY: bench-decide
bench-decide: build ## decisions of the 0.5B on the labelled set, beside asking it for JSON, and what 20 questions cost; ONEBIT_DECIDE_WAYS=1 tries others
	@bash e2e/test.sh bench-decide

.PHONY: bench-route
bench-route: build ## what it adds to a request that the box chooses its model; an hour of the queue
	@bash e2e/test.sh bench-route

.PHONY: bench-cache
bench-cache: build ## a replay of agents with the prompt cache and without, on the engine and on llama-server: first-token time by turn; half an hour on two cores
	@bash e2e/test.sh bench-cache

.PHONY: bench-proxy
bench-proxy: setup ## serve beside Caddy, LiteLLM and $$LLAMA_SWAP: time and work that each adds to a stream
	@bash e2e/test.sh bench-proxy

.PHONY: bench-edge
bench-edge: setup ## a box beside Caddy as TLS proxy over HTTP/1.1, 2 and 3; 1,000 streams, memory, start
	@bash e2e/test.sh bench-edge

.PHONY: bench-ext
bench-ext: build ## a decision of a module: in a worker and in process, beside plain wazero and Extism; upload to active
	@bash e2e/test.sh bench-ext

.PHONY: extensions
extensions: setup ## build the example modules into bin/extensions; installs clang, Rust and AssemblyScript where they lack
	@eval "$$(bash e2e/setup.sh guests)" && bash extensions/build.sh all bin/extensions

.PHONY: llama
llama: ## build the reference llama-server into the cache (about 10 minutes) and print its directory
	@bash e2e/llama/build.sh

$(LINT):
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) GOFLAGS= go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
	@mv $(TOOLS)/golangci-lint $@

.PHONY: lint
lint: $(LINT) ## golangci-lint with the explicit list of .golangci.yml
	$(LINT) run

.PHONY: fmt
fmt: ## format every Go file
	gofmt -w $$(git ls-files '*.go')

.PHONY: fmt-check
fmt-check: ## fail on a Go file that is not formatted
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "not gofmt-ed (make fmt mends it):"; echo "$$out"; exit 1; }

.PHONY: vet
vet: ## go vet for every system that releases are built for
	@for t in linux/amd64 linux/arm64 darwin/arm64 windows/amd64; do \
		echo "vet $$t"; GOOS=$${t%/*} GOARCH=$${t#*/} go vet $(PKGS) || exit 1; done
	@echo "vet wasip1/wasm"; GOOS=wasip1 GOARCH=wasm go vet $$(grep -l 'go:build wasip1' extensions/guest/go/*.go extensions/guest/probe/go/*.go extensions/examples/*/*.go | xargs -n 1 dirname | sort -u | sed 's|^|./|')

.PHONY: vuln
vuln: ## known vulnerabilities in what we depend on
	go run golang.org/x/vuln/cmd/govulncheck@latest ./...

.PHONY: generate
generate: ## write the generated assembly again
	go generate ./...

.PHONY: check
check: fmt-check lint vet race ## format, lint, floors, vet and race tests
	go test -count=1 -run 'TestFloors' ./e2e

.PHONY: install
install: ## install what make build has built: PREFIX=/usr/local DESTDIR=; the units are 1bit-engines and 1bit
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' bash appliance/package/install.sh install

.PHONY: uninstall
uninstall: ## take it away again; the state of the box is left
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' bash appliance/package/install.sh uninstall

.PHONY: dist
dist: setup ## release archives, Debian packages and a container image with checksums in dist/
	@VERSION=$(VERSION) bash e2e/dist.sh

.PHONY: clean
clean: ## remove what was built here
	rm -rf bin dist
