/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluates passwords in the file .credentials that are written as a variable or a command. */
#ifndef REGISTRY_PASSWORD_H
#define REGISTRY_PASSWORD_H

#include "native/base/text.h"

/* What `text` means: "$(PROGRAM ARGUMENTS)" is what that prints, "$NAME" and "${NAME}" the variable; all else itself. No
 * shell runs: words may be quoted and hold variables, and nothing else of a shell's language is there. The program is ended after `seconds` (0: never). NULL with `err`,
 * which shows nothing of a password. The caller frees it. */
char *password_evaluate(const char *text, unsigned seconds, struct jail_error *err);

/* Bytes that a program may print which is asked for a password: tokens of clouds have some thousand. */
#define PASSWORD_OUTPUT_MOST ((size_t)1 << 20)

#endif
