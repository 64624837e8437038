/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the header WWW-Authenticate of a 401 (RFC 9110, 11.6.1), by which a registry says how to log in. */
#ifndef REGISTRY_CHALLENGE_H
#define REGISTRY_CHALLENGE_H

#include <stdbool.h>

enum challenge_scheme { CHALLENGE_NONE, CHALLENGE_BASIC, CHALLENGE_BEARER };

struct challenge {
	enum challenge_scheme scheme;
	char realm[1024], service[256], scope[1024]; /* "" where it names none */
};

/* The bearer challenge of `header`, else the basic one; CHALLENGE_NONE: neither is there. What does not fit into its
 * field is left out. */
void challenge_parse(struct challenge *challenge, const char *header);

#endif
