# The verbs that people type. The build itself is meson's; everything is in build/.
# Debian's Python runs the build and the tests, whatever else stands first on the PATH.
export PATH := /usr/bin:$(PATH)

BUILD := build
FUZZ_SECONDS := 60
BENCHES := version exec journal streams engine
MESON_OPTIONS :=

.PHONY: all deps build demo check bench fuzz install clean
all: build

deps:
	@scripts/install-deps build

$(BUILD)/build.ninja:
	@meson setup $(BUILD) --buildtype=debugoptimized $(MESON_OPTIONS)

build: deps
	@$(MAKE) --no-print-directory $(BUILD)/build.ninja
	@ninja -C $(BUILD)

demo: build
	@$(BUILD)/rlmflow demo

check:
	@scripts/install-deps check
	@$(MAKE) --no-print-directory build
	@scripts/run-checks $(BUILD)

bench: build
	@ninja -C $(BUILD) $(BENCHES:%=bench/bench_%) bench/bench_waves
	@for b in $(BENCHES); do echo "== $$b"; $(BUILD)/bench/bench_$$b || exit 1; done
	@echo "== waves"; python3 bench/waves.py $(BUILD)
	@echo "== inputs"; python3 bench/inputs.py $(BUILD) 256

fuzz:
	@scripts/install-deps ci
	@scripts/run-fuzz $(FUZZ_SECONDS)

install: build
	@meson install -C $(BUILD) --no-rebuild
	@[ -n "$(DESTDIR)" ] || ldconfig

clean:
	@rm -rf $(BUILD) build-fuzz build-clang build-asan
