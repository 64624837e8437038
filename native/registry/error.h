/* SPDX-License-Identifier: Apache-2.0 */
/* The struct in which functions of the registry client return an error, and the rules for it.
 *
 * A function that can fail takes a `struct registry_error *` as its last argument and returns -1 (or NULL); only then
 * is the struct meaningful. The first failure fills it. No message holds a password or a token.
 */
#ifndef REGISTRY_ERROR_H
#define REGISTRY_ERROR_H

#include <stdbool.h>

#include "native/base/error.h"

enum registry_fault {
	REGISTRY_FAULT_NONE,
	REGISTRY_FAULT_USAGE,         /* the URI, or an option, is wrong */
	REGISTRY_FAULT_CONFIGURATION, /* a file of configuration or credentials is wrong */
	REGISTRY_FAULT_SYSTEM,        /* something of this machine: a file, memory, a thread */
	REGISTRY_FAULT_UNREACHABLE,   /* no connection could be made */
	REGISTRY_FAULT_TLS,           /* a certificate that is not trusted, or no TLS at all */
	REGISTRY_FAULT_LOST,          /* a connection broke, or gave nothing for too long */
	REGISTRY_FAULT_LIMITED,       /* 429 */
	REGISTRY_FAULT_SERVER,        /* 5xx, or an answer that is none of a registry's */
	REGISTRY_FAULT_CREDENTIALS,   /* it asks for credentials, and none were found */
	REGISTRY_FAULT_DENIED,        /* it refuses the credentials, or refuses everybody */
	REGISTRY_FAULT_MISSING,       /* 404 */
	REGISTRY_FAULT_DIGEST,        /* what came is not what was asked for */
	REGISTRY_FAULT_PLATFORM,      /* the image is not there for this architecture */
	REGISTRY_FAULT_IMAGE,         /* an image, or artifact, that is none which can be imported */
	REGISTRY_FAULT_STOPPED,       /* another part failed, or the caller ended it */
};

struct registry_error {
	enum registry_fault fault;
	int status;           /* HTTP's, or 0 */
	char code[24];        /* the registry's own word for it, "NAME_UNKNOWN" (OCI distribution-spec), or "" */
	double retry_after_s; /* the wait that the registry asked for; below 0: none */
	char message[2048];   /* what happened, where; may have several lines */
	char hint[512];       /* what to do next, or "" */
};

/* Fills `err` and returns -1. */
int registry_fail(struct registry_error *err, enum registry_fault fault, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Adds what to do next; returns -1. */
int registry_hint(struct registry_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same from an error of the other parts; returns -1. */
int registry_fail_jail(struct registry_error *err, enum registry_fault fault, const struct jail_error *cause);

/* Prints it as [ERROR]; returns 1, the exit status. */
int registry_report(const struct registry_error *err);

#endif
