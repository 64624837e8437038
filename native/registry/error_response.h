/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a registry's error response (status >= 400) into one sentence that names the host and the next step. */
#ifndef REGISTRY_ERROR_RESPONSE_H
#define REGISTRY_ERROR_RESPONSE_H

#include "http.h"

/* For an answer of status >= 400 that is not about who asks. `doing` completes "HOST: could not ...". Returns -1. */
int error_response_fail(const char *host, const char *doing, const struct http_answer *answer,
			struct registry_error *err);

/* One line from an error's body (distribution-spec 1.1, "Error Codes"), or of a page's first words. Returns `said`. */
char *error_response_line(const struct http_answer *answer, char said[400]);

#endif
