# Verbs.  The build is Meson's (meson.build); what each verb needs is installed by tools/install-deps.
#
#     make demo                 install what is missing, build, index and run the sample set
#     make test                 everything that needs only Debian packages and light Python packages
#
# BUILD names another build folder; SECONDS and FUZZ are for `make fuzz`, IMAGES (a folder of
# photographs named CLASS_NAME) for `make bench`, which draws its own without it.

BUILD ?= build
SECONDS ?= 60
FUZZ ?=
IMAGES ?=
PREFIX ?= $(if $(IMAGES),,photo_)
PYTHON := .venv/bin/python
REFERENCE := .venv-reference/bin/python
SAMPLE := examples/sample/stoker.yaml

# Where the kernel allows it, TSan runs without address randomisation: its run-time of GCC 12 cannot map otherwise.
STILL := $(shell setarch -R true 2>/dev/null && echo setarch -R)
MESON_TEST := meson test --no-rebuild --print-errorlogs

, := ,

export HF_HUB_OFFLINE = 1
export TRANSFORMERS_OFFLINE = 1
export PYTHONDONTWRITEBYTECODE = 1

.DELETE_ON_ERROR:
.PHONY: help
help:
	@echo 'make demo        install what is missing, build, index and run the sample set'
	@echo 'make build       install what is missing, build into $(BUILD)/'
	@echo 'make test        all tests that need only Debian packages and light Python packages'
	@echo 'make test-all    also sanitizers, the second compiler, CPU levels, faults, wheels, the reference software, and the three below'
	@echo 'make test-s3     the S3 client against real servers and against faults by schedule (part of test-all)'
	@echo 'make test-train  real training on Stoker: torch, Hugging Face, Megatron (part of test-all)'
	@echo 'make test-ray    engines on a Ray cluster (part of test-all)'
	@echo 'make test-gpu    pixels, pinned memory and streams on a CUDA device (GPU_PYTHON names an interpreter with torch for it)'
	@echo 'make wheels      wheels of the Python package in $(BUILD)/wheels/, for each CPython from 3.10 to 3.13 that is there, tested'
	@echo 'make test-wheel-tree  such a wheel in a minimal Debian without the libraries that it brings (root)'
	@echo 'make bench       images and samples a second beside the reference processor and an expert pipeline'
	@echo 'make bench-s3    objects a second from a store 30 ms away, beside other clients'
	@echo 'make bench-next  microseconds of a ready batch beside a torch DataLoader, and what an engine beside takes from a training loop'
	@echo 'make bench-talk  batches of 256 from that store: serial, parallel and prefetched, beside a serial loader in Python'
	@echo 'make bench-cluster  the ladder from a serial loader to engines spread over a Ray cluster, on network namespaces (as root)'
	@echo 'make conformance the pinned releases of the reference beside Stoker: docs/conformance.md (downloads 12 GB once)'
	@echo 'make fuzz        SECONDS=60 of each fuzz target; FUZZ=jpeg for one'
	@echo 'make format      clang-format over the C files that differ from the last commit'
	@echo 'make sample      make the sample set and its checkpoint folder again (needs the reference software)'
	@echo 'make install     meson install (DESTDIR and prefix as Meson has them)'
	@echo 'make clean       remove build folders; `make distclean` also virtual environments'

# --- build ---

.PHONY: deps build
deps:
	@tools/install-deps build

# $(call configure,folder,options): set the folder up once; Meson itself notices changed build files later.
configure = test -f $(1)/build.ninja || meson setup $(1) $(2)

build: deps
	@$(call configure,$(BUILD),)
	@ninja -C $(BUILD)

.PHONY: demo
demo: build
	$(BUILD)/cli/stoker index $(SAMPLE)
	$(BUILD)/cli/stoker run $(SAMPLE) --step-ms 20

.PHONY: install
install: build
	meson install -C $(BUILD)

# --- tests ---

.PHONY: test test-c test-python
test: test-c test-python

test-c: build
	@tools/install-deps test
	$(MESON_TEST) -C $(BUILD)

test-python: build
	@tools/install-deps test
	STK_BUILD=$(abspath $(BUILD)) $(PYTHON) -m pytest -q -p no:cacheprovider tests

.PHONY: test-all test-asan test-tsan test-clang test-levels test-faults test-reference test-s3 test-train test-ray
test-all: test-levels test-asan test-tsan test-faults test-clang test-s3 test-wheel test-reference test-train test-ray

# $(call some_schedules,folder): 60 of the fault schedules, and what a sanitizer alone sees, of `make test-s3`, with the client of that build folder.
some_schedules = sh -ec 'tools/install-deps s3; ninja -C $(1) tests/s3/store_probe; \
	STK_BUILD=$(abspath $(1)) STK_SCHEDULES=60 .venv-s3/bin/python -m pytest -q -p no:cacheprovider tests/s3/test_fault_schedules.py -k "random or takes_no_header"'

# Who talks to whom does not depend on the level.
test-levels: build
	STK_CPU=none $(MESON_TEST) -C $(BUILD) --no-suite checks --no-suite process
	STK_CPU=avx2 $(MESON_TEST) -C $(BUILD) --no-suite checks --no-suite process

test-asan: deps
	@$(call configure,build-asan,-Db_sanitize=address$(,)undefined -Db_ndebug=false -Doptimization=1 -Ddebug=true)
	@ninja -C build-asan
	UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 $(MESON_TEST) -C build-asan --no-suite checks -t 4
	@tools/install-deps test
	LD_PRELOAD=$$(gcc -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=1 \
		UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 STK_SOAK=2000 STK_BUILD=$(abspath build-asan) \
		$(PYTHON) -m pytest -q -p no:cacheprovider tests/python
	ASAN_OPTIONS=quarantine_size_mb=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 $(call some_schedules,build-asan)

test-tsan: deps
	@$(call configure,build-tsan,-Db_sanitize=thread -Db_ndebug=false -Doptimization=1 -Ddebug=true)
	@ninja -C build-tsan
	TSAN_OPTIONS=halt_on_error=1 $(STILL) $(MESON_TEST) -C build-tsan --no-suite checks -t 8
	TSAN_OPTIONS=halt_on_error=1 $(STILL) $(call some_schedules,build-tsan)

# Named faults, swept; with assertions on.
test-faults: deps
	@$(call configure,build-faults,-Dfaults=true -Db_ndebug=false -Db_sanitize=address -Doptimization=1 -Ddebug=true)
	@ninja -C build-faults
	$(MESON_TEST) -C build-faults --no-suite checks -t 4

test-clang: deps
	@tools/install-deps check
	@CC=clang CXX=clang++ && export CC CXX && $(call configure,build-clang,--werror)
	@ninja -C build-clang
	$(MESON_TEST) -C build-clang

# Beside the real reference software: what `make test` had to skip.
test-reference: build
	@tools/install-deps reference
	STK_BUILD=$(abspath $(BUILD)) $(REFERENCE) -m pytest -q -p no:cacheprovider tests

# For whoever has a CUDA device, and torch for it in an interpreter that has pytest: make test-gpu GPU_PYTHON=python3
GPU_PYTHON ?= $(REFERENCE)
.PHONY: test-gpu
test-gpu: build
	STK_GPU=1 STK_REQUIRE=all STK_BUILD=$(abspath $(BUILD)) $(GPU_PYTHON) -m pytest -q -p no:cacheprovider tests/gpu

# Servers that verify signatures, and a store that misbehaves by schedule; tests/s3.  SCHEDULES: how many of those.
SCHEDULES ?= 1000
test-s3: build
	@tools/install-deps s3
	@ninja -C $(BUILD) tests/s3/store_probe
	STK_BUILD=$(abspath $(BUILD)) STK_SCHEDULES=$(SCHEDULES) .venv-s3/bin/python -m pytest -q -p no:cacheprovider tests/s3

# Trainers that people have, on CPUs; tests/train.  Bridge's releases want an environment of their own.
TRAIN := .venv-train/bin/python
test-train: build
	@tools/install-deps train bridge
	OMP_NUM_THREADS=1 STK_BUILD=$(abspath $(BUILD)) $(TRAIN) -m pytest -q -p no:cacheprovider tests/train
	OMP_NUM_THREADS=1 STK_BUILD=$(abspath $(BUILD)) .venv-bridge/bin/python -m pytest -q -p no:cacheprovider tests/bridge

# Clusters of several nodes on this machine; tests/ray.  Streams and faults also with the oldest Ray that is supported.
test-ray: build
	@tools/install-deps train ray-oldest
	OMP_NUM_THREADS=1 STK_BUILD=$(abspath $(BUILD)) $(TRAIN) -m pytest -q -p no:cacheprovider tests/ray
	OMP_NUM_THREADS=1 STK_BUILD=$(abspath $(BUILD)) .venv-ray-oldest/bin/python -m pytest -q -p no:cacheprovider \
		tests/ray/test_ray_stream.py tests/ray/test_ray_faults.py -k "not tensors"

# PYTHONS: the interpreters; test-wheel takes one.
PYTHONS ?= python3.10 python3.11 python3.12 python3.13 python3.13t
.PHONY: wheels test-wheel test-wheel-tree
wheels: build
	@tools/install-deps wheel
	STK_BUILD=$(abspath $(BUILD)) tools/make-wheels $(BUILD)/wheels $(PYTHONS)

test-wheel:
	$(MAKE) wheels PYTHONS=python3

# As root, and some minutes: not part of test-all.
test-wheel-tree: test-wheel
	@tools/install-deps tree
	tools/test-wheel-tree $(BUILD)/wheels

# --- bench, fuzz, format, sample ---

BENCH_SET = $(or $(IMAGES),$(BUILD)/bench-set)

.PHONY: bench conformance fuzz format sample clean distclean
bench: build
	@tools/install-deps reference
	@ninja -C $(BUILD) bench/libbench_kernels.so
	$(if $(IMAGES),,$(REFERENCE) tools/make-bench-set $(BUILD)/bench-set)
	$(REFERENCE) bench/compare_images.py --kernels $(BUILD)/bench/libbench_kernels.so --images $(BENCH_SET)
	$(REFERENCE) tools/make-reference-model qwen3-vl $(BUILD)/reference-model
	$(REFERENCE) bench/compare_samples.py --stoker $(BUILD)/cli/stoker --model $(BUILD)/reference-model \
		--images $(BENCH_SET) --prefix '$(PREFIX)'

BENCH_STORE = bench/slow_store bench/bench_store
.PHONY: bench-s3 bench-talk bench-next
bench-s3: build
	@tools/install-deps rivals
	@ninja -C $(BUILD) $(BENCH_STORE)
	python3 bench/compare_store.py --build $(BUILD) $(if $(ROUNDS),--rounds $(ROUNDS))

bench-talk: build
	@tools/install-deps reference rivals
	@ninja -C $(BUILD) bench/slow_store
	$(REFERENCE) tools/make-reference-model qwen3-vl $(BUILD)/reference-model
	$(REFERENCE) tools/make-bench-set $(BUILD)/bench-set
	$(REFERENCE) bench/talk.py --build $(BUILD)

bench-next: build
	@tools/install-deps reference
	OMP_NUM_THREADS=1 PYTHONPATH=$(abspath $(BUILD)/python) $(REFERENCE) bench/next.py $(if $(ROUNDS),--rounds $(ROUNDS))

# The ladder of the talk on network namespaces: as root.  RUNGS: letters of some of them, with commas between.
.PHONY: bench-cluster
bench-cluster: build
	@tools/install-deps reference train
	@ninja -C $(BUILD) bench/slow_store
	$(REFERENCE) tools/make-reference-model qwen3-vl $(BUILD)/reference-model
	$(REFERENCE) tools/make-bench-set $(BUILD)/bench-set
	.venv-train/bin/python bench/ladder/run.py --build $(BUILD) $(if $(RUNGS),--rungs $(RUNGS))
	$(if $(RUNGS),,.venv-train/bin/python bench/ladder/cable.py --build $(BUILD))

# WRITE=--write writes the goldens and the tables of docs/conformance.md again.
conformance: build
	@tools/install-deps conformance
	.venv-conformance-hf5/bin/python tools/conformance/run.py --stoker $(BUILD)/cli/stoker --probe $(BUILD)/tests/text/text_probe \
		--folder $(BUILD)/conformance $(WRITE)

fuzz: deps
	@tools/install-deps check
	tools/fuzz $(SECONDS) $(FUZZ)

format:
	@tools/install-deps check
	git diff --name-only --diff-filter=d HEAD -- '*.c' '*.h' | xargs -r clang-format -i

sample:
	@tools/install-deps reference
	$(REFERENCE) tools/make-sample-model
	$(REFERENCE) tools/make-sample-set

clean:
	rm -rf build build-asan build-tsan build-faults build-clang build-fuzz

distclean: clean
	rm -rf .venv .venv-*
