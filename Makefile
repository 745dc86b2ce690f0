# The few commands of this repository; `make` alone lists them.
#
# What is built lies outside the work tree, keyed by what it was built from. It can be deleted at any time:
# the next build makes it anew. Results of tests are never kept.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/redis-ha-operator
ifeq ($(origin CARGO_TARGET_DIR),undefined)
CARGO_TARGET_DIR := $(CACHE)/target-$(shell { cat Cargo.lock; rustc --version --verbose; } 2>/dev/null | sha256sum | cut -c1-16)
endif
export CARGO_TARGET_DIR
# Where Debian keeps ip and nft, also from ordinary users.
export PATH := $(PATH):/usr/sbin:/sbin

CARGO := cargo
OPERATOR := redis-ha-operator
CRASH_POINTS := redis-ha-operator/crash-points

.PHONY: help
help: ## List the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: prerequisites ## Kill a Redis master twice under load, and watch (KEEP=1 leaves a shell)
	@e2e/demo.sh

.PHONY: test
test: lint ## Lint, unit and property tests, and all tests in an embedded Kubernetes
	@e2e/test.sh

.PHONY: world
world: prerequisites ## A shell in an embedded Kubernetes with three nodes
	@$(CARGO) build --locked --quiet --package $(OPERATOR) --package world --bins --features $(CRASH_POINTS)
	@readarray -t servers < <(e2e/servers/fetch.sh); \
	    "$$CARGO_TARGET_DIR/debug/world" run "$${servers[@]}" -- e2e/shell.sh

.PHONY: bench
bench: prerequisites ## Faults many times over, with figures (a quarter of an hour; IMAGE=valkey:9.1 for another server)
	@$(CARGO) build --locked --quiet --package world --package scenarios --bins
	@$(CARGO) build --locked --release --package $(OPERATOR)
	@readarray -t servers < <($(if $(IMAGE),e2e/servers/fetch.sh $(IMAGE),true)); \
	    OPERATOR_RELEASE_BINARY="$$CARGO_TARGET_DIR/release/$(OPERATOR)" \
	    "$$CARGO_TARGET_DIR/debug/world" run "$${servers[@]}" -- \
	    "$$CARGO_TARGET_DIR/debug/bench" all $(if $(IMAGE),--image $(IMAGE))

.PHONY: sim
sim: ## The supervisor in a simulated world: search (DURATION=10m or SEEDS=1000), or one SEED=N as a story
	@$(CARGO) build --locked --quiet --profile sim --package sim
	@"$$CARGO_TARGET_DIR/sim/sim" $(if $(SEED),seed $(SEED) --shrink,run $(if $(SEEDS),--seeds $(SEEDS),--duration $(or $(DURATION),1m)))

.PHONY: mutants
mutants: ## Switch off each mechanism that safety rests on: the simulator has to notice
	@$(CARGO) build --locked --quiet --profile sim --package sim --features sim/mutants
	@"$$CARGO_TARGET_DIR/sim/sim" mutants

.PHONY: lint
lint: prerequisites ## Formatting and lints of Rust, Go, shell and the chart; licenses where cargo-deny is installed
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --quiet --workspace --all-targets -- -D warnings
	$(CARGO) clippy --locked --quiet --workspace --all-targets --features $(CRASH_POINTS) -- -D warnings
	@unformatted=$$(gofmt -l e2e/kubebox); [[ -z "$$unformatted" ]] || { echo "run gofmt -w on: $$unformatted"; exit 1; }
	shellcheck .ci/run e2e/*.sh e2e/*/*.sh
	@e2e/chart.sh
	@if command -v cargo-deny >/dev/null; then \
	    $(CARGO) deny --locked --all-features check --hide-inclusion-graph bans licenses sources; \
	else \
	    echo "cargo-deny is not installed: licenses and sources of dependencies are not checked here"; \
	fi

.PHONY: generate
generate: ## Write crds/ and the chart's copy from the Rust types
	@crd=$$($(CARGO) run --locked --quiet -- crd) && \
	    printf '%s\n' "$$crd" | tee crds/redisclusters.redis-ha.dev.yaml > charts/$(OPERATOR)/files/redisclusters.redis-ha.dev.yaml

.PHONY: prerequisites
prerequisites:
	@e2e/prerequisites.sh
