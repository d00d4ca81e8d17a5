# azserve: `make help` lists the targets.

GO      ?= go
PYTHON  ?= python3
VENV    := .venv
PY      := $(VENV)/bin/python
PEERS   := .venv-peers
NATIVE  := python/src/azserve/libazserve.so
GOFILES := $(shell find . -name '*.go' -not -path './.venv*' 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help build run test test-all check lint bench bench-peers bench-peers-torch generate clean FORCE

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

build: bin/azserve $(VENV)/.installed ## bin/azserve, and .venv with the Python package installed

bin/azserve: $(GOFILES) go.mod go.sum
	$(GO) build -o $@ ./cmd/azserve

# With jaxlib's header the library has handlers for XLA's FFI, which azserve.jax_api needs.
XLA = $(firstword $(wildcard $(VENV)/lib/python3*/site-packages/jaxlib/include $(PEERS)/lib/python3*/site-packages/jaxlib/include))

$(NATIVE): $(GOFILES) $(wildcard python/native/*.[ch]) python/src/azserve/azserve.h go.mod go.sum $(wildcard $(XLA)/xla/ffi/api/c_api.h)
	CGO_CFLAGS="-O2 -g $(addprefix -I,$(abspath $(XLA)))" $(GO) build -buildmode=c-shared -o $@ ./python/libazserve
	@rm -f python/src/azserve/libazserve.h

$(VENV)/.installed: $(NATIVE) python/pyproject.toml
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q --disable-pip-version-check -e 'python[test,check]'
	@touch $@

run: build ## the main job: tic-tac-toe from random play, and what was reached, in about half a minute
	bin/azserve train TicTacToe-v0

test: build ## all tests: Go with the race detector where it pays, and Python
	$(GO) test ./...
	$(GO) test -race -short ./statestore ./pool ./search/... ./evaluator/... ./selfplay \
		./analysis ./api/...
	CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/azserve
	$(PY) -m pytest -q python/tests

test-all: build ## test, and what needs large packages (torch, onnxscript, jax, mctx, moviepy)
	$(PY) -m pip install -q --disable-pip-version-check 'mctx==0.0.71' 'jax==0.10.2' \
		torch onnxscript moviepy array-api-compat optax 'pgx==2.6.0'
	$(MAKE) test

check: build ## formatting, vet, static analysis, types; changes no file
	@test -z "$$(gofmt -l $(GOFILES))" || { echo "gofmt these:"; gofmt -l $(GOFILES); exit 1; }
	$(GO) vet ./...
	CGO_ENABLED=0 $(GO) vet $$($(GO) list ./... | grep -v /python/)
	$(GO) mod tidy -diff
	$(GO) tool staticcheck ./...
	$(VENV)/bin/ruff check python examples
	$(VENV)/bin/mypy --config-file python/pyproject.toml python/src/azserve

lint: ## golangci-lint with .golangci.yml (slow to install the first time)
	golangci-lint run

bench: build ## speed against the peers that are installed, as a table of ratios
	@$(if $(wildcard $(PEERS)/bin/python),$(PEERS)/bin/python,$(PY)) bench/bench.py

bench-peers: build ## install the peers that bench measures against
	@test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install -q --disable-pip-version-check -r bench/peers.txt -e python

bench-peers-torch: bench-peers ## and the peer that needs torch (6 GB)
	$(PEERS)/bin/python -m pip install -q --disable-pip-version-check -r bench/peers-torch.txt

GEN := .venv-generate

$(GEN)/.installed: go.mod
	$(PYTHON) -m venv $(GEN)
	$(GEN)/bin/python -m pip install -q --disable-pip-version-check 'grpcio-tools==1.76.0'
	GOBIN=$(CURDIR)/$(GEN)/bin $(GO) install google.golang.org/protobuf/cmd/protoc-gen-go \
		google.golang.org/grpc/cmd/protoc-gen-go-grpc
	@touch $@

generate: $(GEN)/.installed ## write the Go and Python code of api/azserve/v1/*.proto, which is checked in
	PATH=$(CURDIR)/$(GEN)/bin:$$PATH $(GEN)/bin/python -m grpc_tools.protoc -I api \
		--go_out=api --go_opt=paths=source_relative --go-grpc_out=api --go-grpc_opt=paths=source_relative \
		--python_out=python/src --pyi_out=python/src --grpc_python_out=python/src $(sort $(wildcard api/azserve/v1/*.proto))

clean: ## remove what was built
	rm -rf bin $(VENV) $(GEN) $(NATIVE)
