/* Settings whose names somebody mistyped. */
#ifndef ENROOT_MISSPELT_H
#define ENROOT_MISSPELT_H

#include <stdbool.h>

/* Whether `key` is the setting `known`, an ENROOT_*, but for a slip or two. */
bool misspelt(const char *key, const char *known);

#endif
