/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the setting ENROOT_SQUASH_OPTIONS, options of mksquashfs, for our own squashfs writer. */
#ifndef IMPORTING_SQUASH_OPTIONS_H
#define IMPORTING_SQUASH_OPTIONS_H

#include "native/squashfs/squashfs.h"
#include "native/settings/settings.h"

/* From the settings ENROOT_SQUASH_OPTIONS, ENROOT_MAX_PROCESSORS and SOURCE_DATE_EPOCH. `created` is the image's own time.
 * Returns 0, or -1: an option is not known, or has a wrong value. */
int squash_options(struct squashfs_options *options, const struct settings *settings, int64_t created,
		   struct jail_error *err);

/* Threads that write: ENROOT_MAX_PROCESSORS, which may say anything; `usual` where it says nothing. */
unsigned squash_jobs(const struct settings *settings, long usual);

#endif
