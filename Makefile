# A thin front to CMake and to the scripts in .ci. README.md and tests/README.md say which target to use when.
BUILD   := build/release
DATA    ?=
JOBS    := $(shell nproc)

.PHONY: all build demo docs docs-serve test test-all test-quick test-pythons conformance conformance-full fuzz bench bench-gate bench-record deb wheel wheels release-check clean setup setup-test

all: build

# Packages and the Python environment for `make demo`, and those for the tests as well.
setup:
	@.ci/setup

setup-test:
	@.ci/setup test

# Everything, with tests and the Python package, in build/release.
build: setup-test
	@cmake --preset release >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	@cmake --build --preset release -j $(JOBS)

# Writes a dataset, starts the daemon, reads with a worker, prints one window raw and resampled. Builds only the
# programs for that. DATA=/path/to/file.hdf5 takes a robomimic-style file of yours.
demo: setup
	@cmake --preset demo >build/configure-demo.log 2>&1 || { cat build/configure-demo.log; exit 1; }
	@cmake --build --preset demo -j $(JOBS)
	@build/venv/bin/python tests/demo/demo.py --build build/demo-release $(if $(DATA),--data "$(DATA)")

# The guide, as a site: build/docs/index.html. A broken link is an error (mkdocs -q would not count it). docs-serve shows it
# while you edit its pages. Some pages are made from the help of the programs, which are those of `make demo`.
MKDOCS := NO_MKDOCS_2_WARNING=1 TRAJD_BUILD=build/demo-release build/venv-docs/bin/mkdocs
docs docs-serve:
	@.ci/setup docs
	@cmake --preset demo >build/configure-demo.log 2>&1 || { cat build/configure-demo.log; exit 1; }
	@cmake --build --preset demo -j $(JOBS)
	@$(MKDOCS) $(if $(filter docs,$@),build --strict,serve) -f clients/docs/mkdocs.yml

# The tree's rules, unit, model, golden and integration tests, sanitizers, each fuzzer for some seconds. Runs each test once.
test: setup-test
	@.ci/test

# The same, and all tests with the ordinary build as well.
test-all: setup-test
	@.ci/test all

# The ordinary build's tests without the slow ones.
test-quick: build
	@ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)
	@build/venv/bin/python -m pytest -q -n $$(($(JOBS) * 3 / 2)) --dist loadfile -m "not slow" tests

# What the feed does to time, masks and order, and what survives kill -9 (tests/conformance). Fails if a guarantee does
# not hold, or if alignment is worse than in the recorded run. Writes build/conformance/report.html.
CONFORMANCE := PYTHONPATH=tests/conformance:$(BUILD)/clients/python build/venv/bin/python -m loaderproof
conformance: build
	@mkdir -p build/conformance
	@$(CONFORMANCE) run trajd --quick --out build/conformance/trajd.jsonl --compare tests/conformance/results/trajd.jsonl
	@$(CONFORMANCE) report build/conformance --out build/conformance/report.html
	@echo "build/conformance/report.html"

# The table of all loaders, into tests/conformance/results: hours. make_peers.sh installs them (6 GB).
conformance-full: build
	@tests/conformance/make_peers.sh build/conformance
	@tests/conformance/run_all.sh $(BUILD) build/conformance tests/conformance/results

# Each fuzzer for MINUTES, as many at once as there are processors. Needs clang. Prints inputs, edges and findings of each.
MINUTES ?= 30
fuzz:
	@.ci/fuzz $$(($(MINUTES) * 60))

# The package for `pip install`, for this machine's architecture and C library: build/wheel/trajd-*.whl.
# Builds only what is in it.
wheel:
	@.ci/setup wheel
	@cmake --preset wheel >build/configure-wheel.log 2>&1 || { cat build/configure-wheel.log; exit 1; }
	@cmake --build --preset wheel -j $(JOBS)
	@build/venv/bin/python clients/python/packaging/trajd_wheel.py --build build/wheel-release --out build/wheel

# The quick tests of the Python package on that wheel, with each Python from 3.9 on that this machine has.
test-pythons: build wheel
	@build/venv/bin/python tests/tools/every_python.py --build $(BUILD)

# The wheels to publish, for x86-64 and 64-bit ARM and any C library since 2.28: build/wheels/trajd-*.whl. Takes a
# quarter of an hour. clients/python/packaging/wheels/README.md has the details.
wheels: setup-test
	@[ -x build/venv-wheels/bin/pip ] || python3 -m venv build/venv-wheels
	@build/venv-wheels/bin/pip install -q --disable-pip-version-check --require-hashes \
		-r clients/python/packaging/wheels/requirements.txt
	@nice build/venv-wheels/bin/python clients/python/packaging/wheels/make_wheels.py

bench: build
	@build/venv/bin/python tests/bench/run.py --build $(BUILD)

# Is this tree slower than the commit BASE? Builds that commit, and lets both builds take turns (tests/bench/README.md).
bench-gate: build
	@build/venv/bin/python tests/bench/gate.py --build $(BUILD) --base "$(BASE)"

# Records the run behind the table in tests/bench/README.md, with robomimic and small files, and writes that table. ROBOMIMIC is a Python with
# robomimic and torch (tests/bench/README.md).
ROBOMIMIC ?= build/venv-robomimic/bin/python
RESULTS   ?= tests/bench/results/cpu-2cores.json
bench-record: build
	@-build/venv/bin/python tests/bench/run.py --build $(BUILD) --robomimic-python $(ROBOMIMIC) --small-files --out $(RESULTS)
	@build/venv/bin/python tests/bench/readme_table.py $(RESULTS) --write

# Is this tree ready to be released? Builds the version before, and lets the daemons and workers of both work together.
release-check: build
	@.ci/release-check $(BUILD)

# build/release/trajd_VERSION_ARCH.deb: daemon, tools, library, headers, units.
deb: build
	@cd $(BUILD) && cpack -G DEB

clean:
	rm -rf build
