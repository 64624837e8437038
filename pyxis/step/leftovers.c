/* SPDX-License-Identifier: Apache-2.0 */
/* Removes container roots and files that earlier jobs of the user left because neither their cleanup process nor an
 * epilog could run. container.c calls it. */
#define _GNU_SOURCE
#include "leftovers.h"

#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "root_label.h"

/* So many roots of other jobs are looked into: of a user with hundreds of jobs most are of jobs that run. */
#define LOOKS 16

/* The job of "pyxis_JOB.STEP...", or of the hidden file of an import; 0: it is neither. */
static uint32_t job_of(const char *name)
{
	char *end;

	name += *name == '.';
	if (!text_starts(name, "pyxis_") || !isdigit((unsigned char)name[strlen("pyxis_")]))
		return 0;
	unsigned long job = strtoul(name + strlen("pyxis_"), &end, 10);
	return *end == '.' && isdigit((unsigned char)end[1]) && job < UINT32_MAX ? (uint32_t)job : 0;
}

static bool is_left(const char *folder, const char *name, const char *cluster)
{
	scoped_free char *path = text_format("%s/%s", folder, name);
	scoped_free char *end = text_format("@%s.sqsh", cluster);

	return name[0] == '.' ? text_ends(name, end) : pyxis_root_label_is_temporary(path, cluster);
}

/* Whether it is one of the jobs that will be asked about. */
static bool take_job(struct pyxis_leftovers *leftovers, uint32_t job)
{
	for (unsigned i = 0; i < leftovers->n; i++)
		if (leftovers->jobs[i] == job)
			return true;
	if (leftovers->n == PYXIS_LEFTOVER_JOBS)
		return false;
	leftovers->jobs[leftovers->n++] = job;
	return true;
}

void pyxis_leftovers_find(struct pyxis_leftovers *leftovers, const char *root, const char *cluster, uint32_t own)
{
	char *folder = text_copy(root, (size_t)(strrchr(root, '/') - root));
	DIR *stream = *cluster ? opendir(folder) : NULL;
	scoped_list names = { 0 };

	leftovers->folder = folder;
	for (struct dirent *entry; stream && (entry = readdir(stream));) {
		uint32_t job = job_of(entry->d_name);
		if (job && job != own)
			text_list_add(&names, entry->d_name);
	}
	if (stream)
		closedir(stream);
	/* Not always the same ones first, or those of long jobs hide all others. */
	for (size_t i = 0; i < names.n && i < LOOKS; i++) {
		const char *name = names.items[(own + i) % names.n];
		if (is_left(folder, name, cluster) && take_job(leftovers, job_of(name)))
			text_list_add(name[0] == '.' ? &leftovers->files : &leftovers->roots, name);
	}
}

static bool is_over(const struct pyxis_leftovers *leftovers, const char *name, unsigned over)
{
	uint32_t job = job_of(name);

	for (unsigned i = 0; i < leftovers->n; i++)
		if (leftovers->jobs[i] == job)
			return over >> i & 1;
	return false;
}

void pyxis_leftovers_drop(struct pyxis_leftovers *leftovers, unsigned over)
{
	struct text_list roots = { 0 };

	for (size_t i = 0; i < leftovers->files.n; i++) {
		scoped_free char *path = text_format("%s/%s", leftovers->folder, leftovers->files.items[i]);
		if (is_over(leftovers, leftovers->files.items[i], over))
			(void)unlink(path);
	}
	for (size_t i = 0; i < leftovers->roots.n; i++)
		if (is_over(leftovers, leftovers->roots.items[i], over))
			text_list_add(&roots, leftovers->roots.items[i]);
	text_list_free(&leftovers->roots);
	leftovers->roots = roots;
}

void pyxis_leftovers_free(struct pyxis_leftovers *leftovers)
{
	free(leftovers->folder);
	text_list_free(&leftovers->roots);
	text_list_free(&leftovers->files);
	*leftovers = (struct pyxis_leftovers){ 0 };
}
