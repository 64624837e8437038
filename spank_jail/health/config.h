/* SPDX-License-Identifier: Apache-2.0 */
/* Reads which checks a node has, their limits, and how many nodes may be drained for them, from lines of
 *
 *   check NAME [off] [KEY=VALUE...]   what is no key of the runner's is an argument of the program
 *   budget least=2 percent=10 within=3600
 *   folder PATH                       of the site's own checks
 *
 * A later line changes what an earlier one says: the image's checks.conf, the site's, and last the cluster's
 * health.conf.
 */
#ifndef NODE_HEALTH_CONFIG_H
#define NODE_HEALTH_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "native/base/error.h"
#include "native/base/text.h"

#define HEALTH_MOST_CHECKS 64
#define HEALTH_MOST_STRIKES 32
#define HEALTH_NAME_SIZE 32
#define HEALTH_CHECKS "/usr/lib/cellblock/health"
#define HEALTH_CONFIG "/etc/cellblock/health.conf"

struct health_check {
	char name[HEALTH_NAME_SIZE];
	char *program;         /* NULL: none has been found */
	bool off;
	unsigned limit_s;      /* it is ended then */
	unsigned strikes, of;  /* failed so often of the last `of`: the node is sick */
	unsigned passes;       /* in a row: it is healthy again */
	unsigned every_s;      /* after a pass; 0: each turn */
	bool drains;           /* else it warns */
	bool undo;             /* its drain is undone when it passes again */
	bool prolog;           /* before each job, too */
	bool optional;         /* a job may leave it out, by its comment */
	char user[33];         /* it is a script of sh, run in the jail as that user; "": a program, run by root outside */
	struct text_list arguments;
};

struct health_config {
	struct health_check checks[HEALTH_MOST_CHECKS];
	size_t n;
	unsigned least, percent; /* of the nodes: so many may be drained by one check */
	unsigned within_s;       /* drains from before that do not count */
	char *site;              /* folder of the site's checks, or NULL */
};

/* Reads `file`, which overrides the checks.conf of `folder` and of the site's folder. What root alone cannot have written is
 * refused. Returns 1; 0 when there is no `file`, and health is off; -1. */
int health_config_read(struct health_config *config, const char *file, const char *folder, struct jail_error *err);

/* Reads lines; `name` stands for them in errors. */
int health_config_lines(struct health_config *config, char *text, const char *name, struct jail_error *err);

/* NULL: there is none, or it is off. */
const struct health_check *health_config_find(const struct health_config *config, const char *name);

void health_config_free(struct health_config *config);

#endif
