/* SPDX-License-Identifier: Apache-2.0 */
/* Prints what a program tells its user: [INFO], [WARN] and [ERROR] lines on standard error. */
#ifndef ENROOT_REPORT_H
#define ENROOT_REPORT_H

#include "error.h"

void report_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void report_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Returns 1, the exit status of a command that failed. */
int report_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
int report_failure(const struct jail_error *err);
void report_warn(const struct jail_error *err);

/* Whether standard error is a terminal: only then do colours and progress make sense. */
int report_is_terminal(void);
/* What is told from now on: errors always. */
enum report_level { REPORT_ERRORS, REPORT_WARNINGS, REPORT_ALL };
void report_level(enum report_level level);

#endif
