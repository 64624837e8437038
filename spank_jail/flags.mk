# How every C program and plugin of Cellblock is compiled and linked; included by their Makefiles.

#
#   WERROR=1   warnings are errors: tests compile so. Other compilers, releases and optimisations have other warnings,
#              which are no reason not to install.

CC ?= gcc
CLANG ?= clang

WARNINGS = -Wall -Wextra $(if $(WERROR),-Werror) -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes \
	-Wformat=2 -Wundef -Wvla -Wwrite-strings -Wimplicit-fallthrough
# 3 where the compiler knows it (gcc 12), else 2.
FORTIFY = $(shell echo 'int main(void){return 0;}' | \
	$(CC) -O2 -Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -include stdio.h -x c - -o /dev/null 2>/dev/null && echo 3 || echo 2)
HARDENING := -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=$(FORTIFY) -fvisibility=hidden \
	-fstack-clash-protection
SANITIZERS = -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
ifdef SANITIZE
# Objects of their own. FORTIFY's checked calls would hide some of what the sanitizers look at.
override BUILD := $(BUILD)/sanitized
HARDENING := -U_FORTIFY_SOURCE $(SANITIZERS)
# Reports name functions and lines all the same, and the rest of -g takes time.
CFLAGS ?= -O2 -g1
endif
CFLAGS ?= -O2 -g
ALL_CFLAGS = -std=gnu11 -fPIC -MMD -MP $(CFLAGS) $(WARNINGS) $(HARDENING)
LINK_HARDENING = -Wl,-z,relro,-z,now -Wl,-z,noexecstack -Wl,--as-needed -Wl,-z,defs
# The fault seam is in: the resolver's target uses it.
FUZZ_FLAGS = -std=gnu11 -O1 -g1 -MMD -MP -DJAIL_FAULTS -Wall -Wextra $(if $(WERROR),-Werror) $(SANITIZERS)
