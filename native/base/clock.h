/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a clock as a number of nanoseconds, milliseconds or seconds. */
#ifndef JAIL_CLOCK_H
#define JAIL_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_MS 1000000L
#define NS_PER_S 1000000000L

static inline int64_t clock_ns(clockid_t clock)
{
	struct timespec now = { 0 };

	(void)clock_gettime(clock, &now);
	return now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* Of the clock that nobody sets. */
static inline int64_t clock_ms(void)
{
	return clock_ns(CLOCK_MONOTONIC) / NS_PER_MS;
}

static inline int64_t clock_s(void)
{
	return clock_ns(CLOCK_MONOTONIC) / NS_PER_S;
}

#endif
