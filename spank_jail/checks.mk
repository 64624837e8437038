# How C unit tests and fuzz targets are named, run and cleared away; included at the end of the Makefiles that have
# any. Each says itself what its programs are linked of.
#
#   make check   one program a unit, tests/test_*.c; SANITIZE=1: under ASan and UBSan
#   make fuzz    libFuzzer targets, fuzz/fuzz_*.c; needs clang and its runtime libraries

TESTS := $(patsubst tests/%.c,$(BUILD)/%,$(wildcard tests/test_*.c))
FUZZERS := $(patsubst fuzz/%.c,$(BUILD)/%,$(wildcard fuzz/fuzz_*.c))

.PHONY: check fuzz clean
check: $(TESTS)
	@status=0; for test in $(TESTS); do $$test || status=1; done; exit $$status

fuzz: $(FUZZERS)

clean:
	rm -rf $(BUILD)

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
