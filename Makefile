# A thin front to CMake: what to type. See README.md.
BUILD   := build/release
DATA    ?=
JOBS    := $(shell nproc)

.PHONY: all build demo test test-quick bench bench-record deb wheel clean setup

all: build

setup:
	@.ci/setup

build: setup
	@cmake --preset release >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	@cmake --build --preset release -j $(JOBS)

# A dataset, the daemon, a worker, one window raw and resampled. DATA=/path/to/file.hdf5 takes your own robomimic-style file.
demo: build
	@build/venv/bin/python tests/demo/demo.py --build $(BUILD) $(if $(DATA),--data "$(DATA)")

# Everything: unit, model, golden and integration tests, then again under sanitizers, fuzzers for a few seconds each.
test: build
	@.ci/test

# Only the ordinary build's tests.
test-quick: build
	@ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)
	@build/venv/bin/python -m pytest -q -n $(JOBS) --dist loadfile tests

# What `pip install` takes, for this machine's architecture and C library: build/wheel/trajd-*.whl.
wheel: build
	@build/venv/bin/python clients/python/packaging/trajd_wheel.py --build $(BUILD) --out build/wheel

bench: build
	@build/venv/bin/python tests/bench/run.py --build $(BUILD)

# Records the run behind the table in tests/bench/README.md, with robomimic and small files, and writes that table. ROBOMIMIC is a Python with
# robomimic and torch (tests/bench/README.md).
ROBOMIMIC ?= build/venv-robomimic/bin/python
RESULTS   ?= tests/bench/results/cpu-2cores.json
bench-record: build
	@-build/venv/bin/python tests/bench/run.py --build $(BUILD) --robomimic-python $(ROBOMIMIC) --small-files --out $(RESULTS)
	@build/venv/bin/python tests/bench/readme_table.py $(RESULTS) --write

# build/release/trajd_VERSION_ARCH.deb: daemon, tools, library, headers, units.
deb: build
	@cd $(BUILD) && cpack -G DEB

clean:
	rm -rf build
