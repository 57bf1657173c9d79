# The entry point. `make` alone lists the targets; each is a line or two over the CMake presets.
#
# All paths are relative to this file, so a checkout may live under a path with spaces.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

JOBS ?= $(shell nproc)
# More than cores: many tests wait for a deadline.
TEST_JOBS ?= 3
SEEDS ?= 20000
FUZZ_SECONDS ?= 30
PREFIX ?= /usr/local
SKIP_DEPS ?=
TRAIN_ARGS ?=
STRESS_ARGS ?=
RUNS ?= 500
SEED ?= 1
STRANGER_ARGS ?=
SIZES ?= 64,128,256
PEERS_ARGS ?=
TRAIN_BENCH_ARGS ?=

# Where the sources live that clang-format and clang-tidy look at.
SOURCE_DIRS := include src tools tests bench examples
TIDY_DIRS ?= src tools tests bench examples

# The benchmarks that `make bench` runs, as paths below build/bench. A missing one is an error.
BENCHES := bench/kernel/bench_kernel bench/coll/bench_collectives

CMAKE_BUILD = cmake --build build/$(1) --parallel $(JOBS)

# Which tests use libtorch, for ctest -R.
TORCH_HALF := ^(tensor|blas_kernels|strategy|guest_threads.*|input|train|train_tuned_process|train_faults)(/|$$)

.PHONY: help deps build test test-threads test-mistakes test-slow test-transports test-faults can-make-namespaces train stress same-bits chaos stranger scale format install clean plans sim fuzz bench bench-strategy bench-cross-device bench-input bench-peers bench-train \
        check check-format check-layers check-fuzz check-clang check-tidy check-ubsan check-asan check-asan-parsers check-tsan check-tsan-core \
        check-torch check-clang-torch check-tidy-torch check-asan-torch check-tsan-torch check-blas check-mpi check-launchers check-install

help: ## This list
	@echo "usage: make <target> [JOBS=$(JOBS)]"
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | \
	  while IFS='|' read -r name text; do printf '  %-14s %s\n' "$$name" "$$text"; done

deps: ## Install the missing Debian packages (SKIP_DEPS=1 turns it off)
	@[ -n "$(SKIP_DEPS)" ] || scripts/install-deps

# Configures a preset once; ninja repeats it by itself when a CMake file changes.
build/%/build.ninja: | deps
	cmake --preset $*

build: build/dev/build.ninja ## Build everything (preset dev)
	$(call CMAKE_BUILD,dev)

test: build ## Build, then run the fast tests
	@ctest --test-dir build/dev -L fast -j $(TEST_JOBS) --output-on-failure --no-tests=error \
	  || { echo "make test: FAILED, see above"; exit 1; }
	@echo "make test: all fast tests passed"

test-threads: build ## The torch half's fast tests with eight libtorch threads, the default of larger machines
	OMP_NUM_THREADS=8 ctest --test-dir build/dev -L fast -R '$(TORCH_HALF)|^examples/' \
	  -j $(TEST_JOBS) --output-on-failure --no-tests=error

test-mistakes: build ## Programs that must not compile, with the compiler that is not the build's own
	ctest --test-dir build/dev -L '^other_compiler$$' -j $(TEST_JOBS) --output-on-failure --no-tests=error

test-slow: build ## Every bit pattern through every rounding, every plan, 20,000 simulated clusters, 128 ranks (as root in namespaces, too)
	@which='^slow$$'; if unshare --mount --net true 2>/dev/null; then which+='|^slow_as_root$$'; \
	else echo "make test-slow: not root, so without the tests that make namespaces"; fi; \
	ctest --test-dir build/dev -L "$$which" -j $(TEST_JOBS) --output-on-failure --no-tests=error

test-transports: build ## Every collective over every transport and layout (as root in namespaces, too)
	@without=; unshare --mount --net true 2>/dev/null \
	  || { echo "make test-transports: not root, so without the tests that make namespaces"; without="-LE as_root"; }; \
	ctest --test-dir build/dev -L transports $$without -j $(TEST_JOBS) --output-on-failure --no-tests=error

# Looked at before the build, which takes longer.
can-make-namespaces: deps
	@unshare --mount --net true 2>/dev/null \
	  || { echo "make: these tests make namespaces and need root (in a container CAP_SYS_ADMIN, too): sudo make $(MAKECMDGOALS)"; exit 1; }
	@command -v ip >/dev/null || { echo "make: no command ip: install iproute2, which make deps does"; exit 1; }

test-faults: can-make-namespaces build ## Networks that are cut, a small /dev/shm, other users: real namespaces (as root)
	ctest --test-dir build/dev -L '^faults$$' -j $(TEST_JOBS) --output-on-failure --no-tests=error

train: build/dev/build.ninja ## Train a net on Fashion-MNIST with two replicas (TRAIN_ARGS for options)
	$(call CMAKE_BUILD,dev) --target fashion_mnist
	@build/dev/examples/fashion_mnist/fashion_mnist $(TRAIN_ARGS)

stress: build/dev/build.ninja ## 100,000 merge calls on 2, 4 and 8 lanes with delays and exceptions
	$(call CMAKE_BUILD,dev) --target strategy_stress
	@build/dev/tests/strategy/strategy_stress $(STRESS_ARGS)

same-bits: build/dev/build.ninja ## Train in every layout and compare the weights' digests
	$(call CMAKE_BUILD,dev) --target same_bits
	@build/dev/tests/train/same_bits

chaos: build/dev/build.ninja ## Kill and stop ranks at random in RUNS clusters, from SEED on
	$(call CMAKE_BUILD,dev) --target chaos
	@build/dev/tests/processes/chaos --runs $(RUNS) --seed $(SEED)

stranger: build/dev/build.ninja ## Strangers throw connections at a training run's ports (STRANGER_ARGS)
	$(call CMAKE_BUILD,dev) --target stranger
	@build/dev/tests/processes/stranger $(STRANGER_ARGS)

scale: build/dev/build.ninja ## Clusters of SIZES=64,128,256 processes: joining, idling, a kill; plans of 1,024 ranks
	$(call CMAKE_BUILD,dev) --target scale
	@build/dev/tests/processes/scale --sizes $(SIZES)

# One at a time, the cheapest first; the first failure ends the run and names itself. check-asan is
# AddressSanitizer and UndefinedBehaviorSanitizer in one; check-ubsan alone would repeat half of it.
CHECKS := check-format check-layers check-fuzz check-clang check-tidy check-asan check-tsan-core
TORCH_CHECKS := check-clang-torch check-tidy-torch check-asan-torch check-tsan-torch
run_checks = for step in $(1); do \
	  echo "== $$step"; \
	  $(MAKE) "$$step" || { echo "make $@: FAILED in $$step"; exit 1; }; \
	done; echo "make $@: all passed"
check: deps ## Format, layers, a minute of fuzzing, clang, clang-tidy, sanitizers; without torch
	@$(call run_checks,$(CHECKS))

check-torch: deps ## clang, clang-tidy, AddressSanitizer and ThreadSanitizer for the torch half (a minute a file)
	@$(call run_checks,$(TORCH_CHECKS))

SOURCES_FOUND = find $(SOURCE_DIRS) \( -name '*.h' -o -name '*.cc' \) -print0

check-format: deps ## Are all sources formatted?
	@$(SOURCES_FOUND) | xargs -0 clang-format --dry-run -Werror \
	  || { echo "not formatted: run make format"; exit 1; }

check-layers: ## Does every layer include only the layers below it?
	@cmake -DROOT="$(CURDIR)" -P cmake/check_layers.cmake

# What a stranger's bytes meet first; a quarter of a minute each.
HANDSHAKE_FUZZERS := frame hello members door tls_greeting
check-fuzz: build/fuzz/build.ninja ## Fuzz frames and handshakes for a minute
	$(call CMAKE_BUILD,fuzz) --target $(addprefix fuzz_,$(HANDSHAKE_FUZZERS))
	@LOCKSTEP_FUZZ_SECONDS=15 scripts/run-fuzz build/fuzz $(HANDSHAKE_FUZZERS)

check-clang: build/tidy/build.ninja ## Build with clang and its thread-safety analysis
	$(call CMAKE_BUILD,tidy)

check-tidy: build/tidy/build.ninja ## Run clang-tidy over TIDY_DIRS
	@scripts/run-tidy build/tidy $(JOBS) $(TIDY_DIRS)

check-clang-torch: build/tidy-torch/build.ninja
	$(call CMAKE_BUILD,tidy-torch)

check-tidy-torch: build/tidy-torch/build.ninja
	@scripts/run-tidy build/tidy-torch $(JOBS) src/tensor src/strategy src/train tests/tensor tests/strategy tests/train bench/strategy bench/cross_device bench/train examples

check-asan check-tsan check-tsan-core check-ubsan: check-%: build/%/build.ninja
	$(call CMAKE_BUILD,$*)
	ctest --test-dir build/$* -L fast -j $(TEST_JOBS) --output-on-failure --no-tests=error

# The torch half alone: everything else is in check-asan and check-tsan-core.
TORCH_TESTS := test_tensor blas_kernels_probe test_strategy test_guest_threads test_guest_threads_process_blas strategy_stress test_input \
               test_train test_train_tuned_process test_train_faults same_bits
define check_torch_half
	$(call CMAKE_BUILD,$(1)) --target $(TORCH_TESTS)
	ctest --test-dir build/$(1) -L fast -R '$(TORCH_HALF)' -j $(TEST_JOBS) --output-on-failure --no-tests=error
endef
check-asan-torch: build/asan-torch/build.ninja ## The torch half's tests under AddressSanitizer
	$(call check_torch_half,asan-torch)
# ThreadSanitizer does not see how OpenMP's threads wait for each other, and the only replica of a
# job would use them.
check-tsan check-tsan-torch: export OMP_NUM_THREADS := 1
check-tsan-torch: build/tsan/build.ninja ## The same under ThreadSanitizer
	$(call check_torch_half,tsan)

# What reads other people's bytes: files, frames, addresses, descriptions of clusters.
PARSER_TESTS := test_sys test_wire_abort test_wire_descriptor test_wire_frame test_cluster \
                test_format_arrays test_format_example test_format_records test_transport_keys test_transport_stream
check-asan-parsers: build/asan/build.ninja ## Those of the parsers alone
	$(call CMAKE_BUILD,asan) --target $(PARSER_TESTS)
	ctest --test-dir build/asan -L fast -R '^(sys|wire|cluster|format|transport_keys|transport_stream)' -j $(TEST_JOBS) \
	  --output-on-failure --no-tests=error

check-asan: ## Fast tests under AddressSanitizer and UndefinedBehaviorSanitizer
check-tsan: ## Fast tests under ThreadSanitizer
check-tsan-core: ## The same without the torch half
check-ubsan: ## Fast tests under UndefinedBehaviorSanitizer alone

check-blas: build/dev/build.ninja ## Is each BLAS of Debian recognised, and fit for replicas as threads?
	$(call CMAKE_BUILD,dev) --target blas_probe
	@scripts/check-blas build/dev/tests/tensor/blas_probe

# Configures again: MPI may have been installed since.
check-mpi: deps ## MPI as an engine: its tests under mpirun, with every MPI that is installed
	@[ -n "$(SKIP_DEPS)" ] || scripts/install-deps --mpi \
	  || { echo "make check-mpi: needs Open MPI, see above"; exit 1; }
	cmake --preset dev
	$(call CMAKE_BUILD,dev) --target mpi_tests
	ctest --test-dir build/dev -L '^mpi$$' --output-on-failure --no-tests=error

check-launchers: deps build/dev/build.ninja ## mpirun of Open MPI and MPICH, srun of a Slurm of one node, torchrun (and TORCHRUN=path)
	@[ -n "$(SKIP_DEPS)" ] || scripts/install-deps --launchers \
	  || { echo "make check-launchers: needs the launchers, see above"; exit 1; }
	$(call CMAKE_BUILD,dev) --target rank_program
	@scripts/check-launchers build/dev/tests/processes/rank_program

check-install: build ## Install into a temporary prefix and build a foreign project against it
	ctest --test-dir build/dev -L install --output-on-failure --no-tests=error

format: deps ## Format all sources in place
	@$(SOURCES_FOUND) | xargs -0 clang-format -i

bench: build/bench/build.ninja ## Run the benchmarks; fails if a target is missed
	$(call CMAKE_BUILD,bench)
	@failed=; \
	for bench in $(BENCHES); do \
	  echo "== $$bench"; \
	  if [ ! -x "build/bench/$$bench" ]; then echo "missing: build/bench/$$bench"; failed+=" $$bench"; \
	  elif ! "build/bench/$$bench"; then failed+=" $$bench"; fi; \
	done; \
	if [ -n "$$failed" ]; then echo "make bench: FAILED:$$failed"; exit 1; fi; \
	echo "make bench: all targets met"

bench-cross-device: build/bench/build.ninja ## Reductions of real gradient sets, beside libtorch's and the memory's speed
	$(call CMAKE_BUILD,bench) --target bench_cross_device
	@build/bench/bench/cross_device/bench_cross_device

bench-input: build/bench/build.ninja ## Reading, decoding and batching, beside bare reads, protobuf and a training step
	$(call CMAKE_BUILD,bench) --target bench_input
	@build/bench/bench/input/bench_input

# Configures again: the libraries of the peers may have been installed since.
bench-peers: deps ## All-reduce beside Open MPI, MPICH and Gloo (as root; PEERS_ARGS="--only 'tcp|wire' --quick")
	@[ -n "$(SKIP_DEPS)" ] || scripts/install-deps --peers \
	  || { echo "make bench-peers: needs Open MPI, MPICH and Gloo, see above"; exit 1; }
	cmake --preset bench
	$(call CMAKE_BUILD,bench) --target bench_peers_all
	@build/bench/bench/peers/bench_peers --json build/bench/peers.json $(PEERS_ARGS)

bench-strategy: build/bench/build.ninja ## Cost of run, merge_call and reduce; two replicas against two threads
	$(call CMAKE_BUILD,bench) --target bench_strategy
	@build/bench/bench/strategy/bench_strategy --defaults
	@build/bench/bench/strategy/bench_strategy

# Configures again: PyTorch may have been installed since.
bench-train: deps ## Training steps beside PyTorch DDP and unconnected processes (as root; TRAIN_BENCH_ARGS="--only mlp --quick")
	@[ -n "$(SKIP_DEPS)" ] || scripts/install-deps --ddp \
	  || { echo "make bench-train: needs Debian's python3-torch, see above"; exit 1; }
	cmake --preset bench
	$(call CMAKE_BUILD,bench) --target bench_train bench_optimizer_step
	@build/bench/bench/train/bench_optimizer_step
	@build/bench/bench/train/bench_train --json build/bench/train.json $(TRAIN_BENCH_ARGS)

plans: build/dev/build.ninja ## Prove every algorithm's plans correct (lockstep plans); find planted bugs
	$(call CMAKE_BUILD,dev) --target lockstep test_plan
	build/dev/tools/lockstep/lockstep plans
	build/dev/tests/plan/test_plan --gtest_filter='Check.*'

sim: build/dev/build.ninja ## Run the simulated cluster with SEEDS seeds, or with one SEED and its trace
	$(call CMAKE_BUILD,dev) --target lockstep_sim_program
	build/dev/tests/sim_cluster/lockstep_sim $(if $(filter command,$(firstword $(origin SEED))),--seed $(SEED),--seeds $(SEEDS))

fuzz: build/fuzz/build.ninja ## Run every fuzz target for FUZZ_SECONDS
	$(call CMAKE_BUILD,fuzz) --target fuzzers
	@LOCKSTEP_FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/run-fuzz build/fuzz

install: build/release/build.ninja ## Install library, headers and command under PREFIX
	$(call CMAKE_BUILD,release)
	cmake --install build/release --prefix "$(PREFIX)"

clean: ## Remove all build directories
	rm -rf build
