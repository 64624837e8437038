/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises a full disk in what a program printed, and says what to do. image.c and save.c call it. */
#define _GNU_SOURCE
#include "disk_space.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "native/base/text.h"
#include "native/base/scoped.h"

/* As the project's programs name the error, and as those say it that it runs. */
static bool says(const char *said, const char *name, const char *text)
{
	return strstr(said, name) || strstr(said, text);
}

static bool is_unwritable(const char *said)
{
	return says(said, "EROFS", "Read-only file system") || says(said, "EACCES", "Permission denied");
}

/* What there is none of: a user's quota is not in statvfs(3), and a file system may have room and no inodes. */
static char *what_is_missing(const char *said, const char *folder, const struct statvfs *space)
{
	if (!says(said, "ENOSPC", "No space left on device"))
		return text_format("%s: the user's quota is used up (quota -s shows it)", folder);
	if (space && space->f_files && space->f_favail < 1000)
		return text_format("%s has room for %lu more files only (inodes)", folder, (unsigned long)space->f_favail);
	return NULL;
}

static char *amount(unsigned long long bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	double value = (double)bytes;
	unsigned unit = 0;

	for (; value >= 1024 && unit < 4; unit++)
		value /= 1024;
	return text_format(unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

/* "1.2 GiB" of "Importing docker://x: 3 layers, 1.2 GiB", as it is read from a registry. */
static char *size_of_import(const char *said)
{
	const char *found = strstr(said, " layers, ");

	if (!found)
		return NULL;
	found += strlen(" layers, ");
	return text_copy(found, strcspn(found, "\n"));
}

char *pyxis_disk_space_advice(const char *said, const char *folder, unsigned long long needed)
{
	static const char next[] = "Remove containers there (enroot list, enroot remove), empty the cache (enroot cache prune), or "
				   "ask for more";
	struct statvfs space;

	if (is_unwritable(said) && access(folder, W_OK))
		return text_format("%s: containers and what is imported lie there, and the user cannot write there on this node; the "
				   "administrator may give another: ENROOT_DATA_PATH in enroot.conf", folder);
	if (!says(said, "ENOSPC", "No space left on device") && !says(said, "EDQUOT", "Disk quota exceeded"))
		return NULL;
	bool known = !statvfs(folder, &space);
	scoped_free char *missing = what_is_missing(said, folder, known ? &space : NULL);
	if (missing)
		return text_format("%s. %s", missing, next);
	scoped_free char *packed = needed ? amount(needed) : size_of_import(said);
	scoped_free char *needs = packed ? text_format("; the image needs more than %s, which is its size packed", packed)
					 : text_copy("", 0);
	scoped_free char *free_room = known ? amount((unsigned long long)space.f_bavail * space.f_frsize)
					    : text_copy("an unknown amount", 17);
	return text_format("%s has %s free%s. %s", folder, free_room, needs, next);
}
