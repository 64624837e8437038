# SPDX-License-Identifier: Apache-2.0
# How all C of Cellblock is compiled, archived, linked and tested; included by native/Makefile and those of the programs.
#
# Every source is named from the top of the project: $(ROOT)/native/base/error.c becomes $(BUILD)/objects/native/base/error.o, and
# what includes it writes "native/base/error.h". Each folder of native/ is one static archive, $(BUILD)/objects/native/base.a. A program
# says which it needs, $(call archives,mount base), and the linker takes from them what is used.
#
#   BUILD        where outputs go; Makefiles that share it compile a source once for all of them
#   OUT          where `make install` puts what is shipped, in one folder
#   SLURM_CFLAGS where Slurm's headers are, when not in the compiler's own places: -I/opt/slurm/include
#
#   make install-system  the same to where it is used: below prefix (/usr), libdir, plugindir (Slurm's PluginDir) and pamdir;
#                        DESTDIR is put before each, for packages
#   WERROR=1     warnings are errors: tests compile so. Other compilers, releases and optimisations have other warnings,
#                which are no reason not to install.
#   TOGETHER=1   the sources of a folder in one go, which takes half the processor time: for who compiles all of it once.
#                Their names may not meet, then: of static functions, macros, types
#   SANITIZE=1   with ASan and UBSan, in $(BUILD)/sanitized; SANITIZE=thread: with TSan, in $(BUILD)/sanitized-thread
#
#   make check   C unit tests, one program a unit: tests/test_*.c
#   make fuzz    libFuzzer targets, $(BUILD)/fuzz_*, from fuzz/fuzz_*.c; needs clang and its runtime libraries

# Absolute: lists of dependencies in a BUILD that Makefiles share name the same files whichever of them runs.
ROOT := $(abspath $(dir $(lastword $(MAKEFILE_LIST)))..)
BUILD ?= build
OUT ?= $(BUILD)/out
DESTDIR ?=
prefix ?= /usr
libdir ?= $(prefix)/lib/$(shell $(CC) -print-multiarch)
plugindir ?= $(libdir)/slurm-wlm
pamdir ?= $(libdir)/security
SLURM_CFLAGS ?=
# $(call put,MODE,FOLDER,FILES)
put = install -d $(DESTDIR)$(2) && install -m $(1) $(3) $(DESTDIR)$(2)/
CC ?= gcc
CLANG ?= clang
comma := ,

WARNINGS = -Wall -Wextra $(if $(WERROR),-Werror) -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes \
	-Wformat=2 -Wundef -Wvla -Wwrite-strings -Wimplicit-fallthrough
# 3 where the compiler knows it (gcc 12), else 2.
FORTIFY = $(shell echo 'int main(void){return 0;}' | \
	$(CC) -O2 -Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -include stdio.h -x c - -o /dev/null 2>/dev/null && echo 3 || echo 2)
HARDENING := -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=$(FORTIFY) -fvisibility=hidden \
	-fstack-clash-protection
SANITIZERS = -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
ifdef SANITIZE
ifeq ($(SANITIZE),thread)
SANITIZERS = -fsanitize=thread -fno-omit-frame-pointer
endif
# Objects of their own. FORTIFY's checked calls would hide some of what the sanitizers look at.
override BUILD := $(BUILD)/sanitized$(if $(filter thread,$(SANITIZE)),-thread)
HARDENING := -U_FORTIFY_SOURCE $(SANITIZERS)
# Reports name functions and lines all the same, and the rest of -g takes time.
CFLAGS ?= -O2 -g1
LINK_SANITIZERS = $(SANITIZERS)
endif
# No -g: what is installed is not debugged where it runs, and it took an eighth of the time. CFLAGS="-O2 -g" brings it.
CFLAGS ?= -O2
# gzip is read by ISA-L where its header is there, else by zlib.
ISAL := $(wildcard /usr/include/isa-l/igzip_lib.h)
PLACES = -iquote $(ROOT) $(SLURM_CFLAGS) -pthread $(if $(ISAL),-DIMAGE_ISAL)
ALL_CFLAGS = -std=gnu11 -fPIC -MMD -MP $(CFLAGS) -ffunction-sections -fdata-sections $(PLACES) $(WARNINGS) $(HARDENING)
# Where it is put, the linker leaves out what nothing of a program reaches.
LINK_HARDENING = -pthread -Wl,-z,relro,-z,now -Wl,-z,noexecstack -Wl,--as-needed -Wl,-z,defs -Wl,--gc-sections $(LINK_SANITIZERS)
# The fault seam is in: the resolver's target uses it.
FUZZ_FLAGS = -std=gnu11 -O1 -g1 -MMD -MP -DJAIL_FAULTS $(PLACES) -Wall -Wextra $(if $(WERROR),-Werror) $(SANITIZERS)

# The libraries, each before those that it uses: the order of the linker.
LIBRARIES := volume tree_check directory squashfs registry cache layers container jail cdi mount seccomp slurm settings base

# What other packages bring, by library of ours.
libraries-tree_check := -ldl
libraries-layers := -lcrypto -lzstd $(if $(ISAL),-lisal,-lz)
libraries-squashfs := -lzstd -llz4 -lz
libraries-registry := -lcurl -ljansson -lcrypto -lm
libraries-cache := -lcrypto
libraries-base := -ldl

# Sources of a folder, and of a folder of native/, from the top.
sources = $(patsubst $(ROOT)/%,%,$(wildcard $(ROOT)/$(1)/*.c))
# $(call objects,SOURCES), $(call archives,NAMES): what programs are linked of; with a second argument, units or fuzz, the
# copy of it that tests have: with the seam by which a system call fails (native/base/sys.h), or from clang.
objects = $(patsubst %.c,$(BUILD)/$(or $(2),objects)/%.o,$(1))
# $(call compiled,FOLDER): all of a folder. Units are apart always: a test may include a source itself.
compiled = $(if $(and $(TOGETHER),$(filter-out units,$(or $(2),objects))),$(BUILD)/$(or $(2),objects)/$(1).o,$(call objects,$(call sources,$(1)),$(2)))
archives = $(foreach name,$(filter $(1),$(LIBRARIES)),$(BUILD)/$(or $(2),objects)/native/$(name).a)
libraries = $(foreach name,$(filter $(1),$(LIBRARIES)),$(libraries-$(name)))

.DEFAULT_GOAL := all
.SECONDARY:
.DELETE_ON_ERROR:

compile-objects = $(CC) $(ALL_CFLAGS)
compile-units = $(CC) $(ALL_CFLAGS) -DJAIL_FAULTS
compile-fuzz = $(CLANG) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link

.SECONDEXPANSION:
# A folder from standard input: a file that is made would be newer than objects that were kept.
define compiling
$(BUILD)/$(1)/%.o: $(ROOT)/%.c
	@mkdir -p $$(@D)
	$$(compile-$(1)) -c -o $$@ $$<

$(BUILD)/$(1)/%.o: $$$$(wildcard $(ROOT)/$$$$*/*.c)
	@mkdir -p $$(@D)
	printf '#include "%s"\n' $$(call sources,$$*) | $$(compile-$(1)) -x c -c -o $$@ -
endef
$(foreach kind,objects units fuzz,$(eval $(call compiling,$(kind))))

define library
$(BUILD)/$(2)/native/$(1).a: $(call compiled,native/$(1),$(2))
	@rm -f $$@
	$(AR) rcsD $$@ $$^
endef
$(foreach kind,objects units fuzz,$(foreach name,$(LIBRARIES),$(eval $(call library,$(name),$(kind)))))

# $(call tested,FOLDER,SOURCES,NAMES): the units and fuzz targets of a folder, linked of what is given.
define tested
UNITS += $(patsubst %.c,$(BUILD)/%,$(notdir $(wildcard $(ROOT)/$(1)/tests/test_*.c)))
FUZZERS += $(patsubst %.c,$(BUILD)/%,$(notdir $(wildcard $(ROOT)/$(1)/fuzz/fuzz_*.c)))

$(patsubst %.c,$(BUILD)/%,$(notdir $(wildcard $(ROOT)/$(1)/tests/test_*.c))): $(BUILD)/%: \
		$(BUILD)/units/$(1)/tests/%.o $(call objects,$(2),units) $(call archives,$(3),units)
	$$(CC) $$(LINK_HARDENING) -o $$@ $$^ $(call libraries,$(3))

$(patsubst %.c,$(BUILD)/%,$(notdir $(wildcard $(ROOT)/$(1)/fuzz/fuzz_*.c))): $(BUILD)/%: \
		$(BUILD)/fuzz/$(1)/fuzz/%.o $(call objects,$(2),fuzz) $(call archives,$(3),fuzz)
	$$(CLANG) -pthread $$(SANITIZERS) -fsanitize=fuzzer -o $$@ $$^ $(call libraries,$(3))
endef

.PHONY: all install install-system check fuzz clean
all:

check: units
	@status=0; for unit in $(UNITS); do $$unit || status=1; done; exit $$status

.PHONY: units
# Expanded when all are known.
units: $$(UNITS)
fuzz: $$(FUZZERS)

clean:
	rm -rf $(BUILD)

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
