# The verbs that people type. The build itself is meson's; everything is in build/.
# Debian's Python runs the build and the tests, whatever else stands first on the PATH.
export PATH := /usr/bin:$(PATH)

BUILD := build
FUZZ_SECONDS := 60
TORTURE_STEP := 1
SOAK_RUNS := 200
SOAK_PACKAGE_RUNS := 10000
SOAK_INPUT := 1073741824
BENCHES := version exec journal streams engine fanout restore
MESON_OPTIONS :=
PREFIX := /usr/local

.PHONY: all deps build demo check bench fuzz torture soak install uninstall clean
all: build

deps:
	@scripts/install-deps build

$(BUILD)/build.ninja:
	@meson setup $(BUILD) --buildtype=debugoptimized $(MESON_OPTIONS)

build: deps
	@$(MAKE) --no-print-directory $(BUILD)/build.ninja
	@ninja -C $(BUILD)

# Only the program, and what building it says only when that fails.
demo: deps
	@log=$$(mktemp); echo "building the program"; \
	{ $(MAKE) --no-print-directory $(BUILD)/build.ninja && ninja -C $(BUILD) rlmflow; } >$$log 2>&1 || \
		{ cat $$log >&2; rm -f $$log; exit 1; }; rm -f $$log
	@$(BUILD)/rlmflow demo

check:
	@scripts/install-deps check
	@$(MAKE) --no-print-directory $(BUILD)/build.ninja
	@meson configure $(BUILD) -Dpython=true
	@$(MAKE) --no-print-directory build
	@scripts/run-checks $(BUILD)

bench: build
	@ninja -C $(BUILD) $(BENCHES:%=bench/bench_%) bench/bench_waves
	@for b in $(BENCHES); do echo "== $$b"; $(BUILD)/bench/bench_$$b || exit 1; done
	@echo "== resume"; python3 bench/resume.py $(BUILD)
	@echo "== waves"; python3 bench/waves.py $(BUILD)
	@echo "== inputs"; python3 bench/inputs.py $(BUILD) 256

fuzz:
	@scripts/install-deps ci
	@scripts/run-fuzz $(FUZZ_SECONDS)

torture:
	@scripts/install-deps ci
	@[ -f build-torture/build.ninja ] || meson setup build-torture -Dtorture=true \
		-Db_sanitize=address,undefined -Db_lundef=false
	@ninja -C build-torture
	@scripts/run-torture build-torture $(TORTURE_STEP)

soak:
	@scripts/install-deps check
	@$(MAKE) --no-print-directory $(BUILD)/build.ninja
	@meson configure $(BUILD) -Dpython=true
	@$(MAKE) --no-print-directory build
	@scripts/run-soak $(BUILD) $(SOAK_RUNS)
	@python3 -c "import sys; sys.path.insert(0, 'tests/python'); import conftest"
	@scripts/run-soak-package $(BUILD)/python/site $(SOAK_PACKAGE_RUNS)
	@scripts/check-big-input $(BUILD)/python/site $(SOAK_INPUT)

install: deps
	@$(MAKE) --no-print-directory $(BUILD)/build.ninja >/dev/null
	@DESTDIR="$(DESTDIR)" scripts/install $(BUILD) "$(PREFIX)"

uninstall:
	@scripts/install --uninstall $(BUILD)

clean:
	@rm -rf $(BUILD) build-fuzz build-clang build-asan build-torture
