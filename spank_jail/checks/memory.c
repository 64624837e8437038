/* SPDX-License-Identifier: Apache-2.0 */
/* Checks free memory, files left in /dev/shm, and that memory and processors are those that the node has in Slurm's
 * configuration. node_checks.c calls it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "check.h"
#include "native/base/scoped.h"
#include "native/base/text.h"

#define MIB (1024 * 1024)

/* Bytes of a line of proc_meminfo(5); 0: it is not there. */
static uint64_t meminfo(const char *text, const char *key)
{
	const char *line = strstr(text, key);
	unsigned long long kib = 0;

	if (line)
		sscanf(line + strlen(key), "%llu kB", &kib);
	return kib * 1024;
}

static bool read_memory(uint64_t *total, uint64_t *available, int *status)
{
	const char *source = check_word("meminfo", "/proc/meminfo");
	scoped_free char *text = check_read(source);

	if (!text) {
		*status = check_could_not_run("%s: %s", source, strerrordesc_np(errno));
		return false;
	}
	*total = meminfo(text, "MemTotal:");
	*available = meminfo(text, "MemAvailable:");
	if (!*total || !strstr(text, "MemAvailable:")) {
		*status = check_could_not_run("%s has no MemTotal and MemAvailable", source);
		return false;
	}
	return true;
}

int check_memory(void)
{
	uint64_t total, available, least = check_number("least", 2);
	int status, jobs = check_has_jobs();

	/* A job may have all of it. */
	if (jobs)
		return jobs > 0 ? CHECK_PASSED : check_could_not_run("whether jobs run is not known");
	if (!read_memory(&total, &available, &status))
		return status;
	if (available * 100 < total * least)
		return check_failed("no job runs, and %llu MiB of %llu MiB of memory are left, less than %llu %%",
				    (unsigned long long)(available / MIB), (unsigned long long)(total / MIB), (unsigned long long)least);
	return CHECK_PASSED;
}

/* Of segments to which no process is attached. */
static uint64_t orphaned_segments(const char *text)
{
	uint64_t sum = 0;

	for (const char *line = strchr(text, '\n'); line && line[1]; line = strchr(line + 1, '\n')) {
		unsigned long long size, attached;
		if (sscanf(line + 1, "%*d %*d %*o %llu %*d %*d %llu", &size, &attached) == 2 && !attached)
			sum += size;
	}
	return sum;
}

int check_shm(void)
{
	uint64_t total, available, most = check_number("most", 10);
	const char *place = check_word("place", "/dev/shm");
	scoped_free char *segments = check_read("/proc/sysvipc/shm");
	struct statvfs st;
	int status, jobs = check_has_jobs();

	if (jobs)
		return jobs > 0 ? CHECK_PASSED : check_could_not_run("whether jobs run is not known");
	if (!read_memory(&total, &available, &status))
		return status;
	if (statvfs(place, &st))
		return check_could_not_run("%s: %s", place, strerrordesc_np(errno));
	uint64_t used = (uint64_t)(st.f_blocks - st.f_bfree) * st.f_frsize, orphaned = segments ? orphaned_segments(segments) : 0;
	if ((used + orphaned) * 100 > total * most)
		return check_failed("no job runs, and %llu MiB of shared memory are left of earlier ones",
				    (unsigned long long)((used + orphaned) / MIB));
	return CHECK_PASSED;
}

/* The number behind KEY= in slurmd's line of the node; 0: none. */
static uint64_t declared_number(const char *line, const char *key)
{
	const char *found = strstr(line, key);

	return found && (found == line || found[-1] == ' ') ? strtoull(found + strlen(key), NULL, 10) : 0;
}

/* Bytes that the container may have; UINT64_MAX: as many as there are. */
static uint64_t limit_of_container(void)
{
	scoped_free char *text = check_read("/sys/fs/cgroup/memory.max");

	return text && *text >= '0' && *text <= '9' ? strtoull(text, NULL, 10) : UINT64_MAX;
}

int check_resources(void)
{
	scoped_free char *line = check_fact("node");
	long online = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t total, available, limit = limit_of_container();
	int status;

	if (!line)
		return check_could_not_run("what the node told Slurm is not known");
	if (!read_memory(&total, &available, &status))
		return status;
	uint64_t memory = declared_number(line, "RealMemory="), cpus = declared_number(line, "CPUs=");
	if (limit < total)
		total = limit;
	if (memory * MIB > total)
		return check_failed("the node told Slurm of %llu MiB of memory, and has %llu", (unsigned long long)memory,
				    (unsigned long long)(total / MIB));
	if (online > 0 && cpus > (uint64_t)online)
		return check_failed("the node told Slurm of %llu processors, and has %ld", (unsigned long long)cpus, online);
	return CHECK_PASSED;
}

int check_cgroup(void)
{
	scoped_free char *mode = check_fact("cgroup"), *own = check_read("/proc/self/cgroup");
	const char *needed = check_word("need", "cpu,cpuset,memory"), *root = check_word("root", "/sys/fs/cgroup");
	scoped_free char *names = text_copy(needed, strlen(needed));
	char *rest = names, *name;

	if (!mode)
		return check_could_not_run("whether Slurm uses cgroups is not known");
	if (strcmp(mode, "v2"))
		return CHECK_PASSED;
	char *path = own ? strstr(own, "0::") : NULL;
	if (!path)
		return check_failed("this process is in no group of cgroup v2");
	path += 3;
	path[strcspn(path, "\n")] = 0;
	scoped_free char *file = text_format("%s%s/cgroup.controllers", root, path), *text = check_read(file);
	if (!text)
		return check_failed("%s: %s", file, strerrordesc_np(errno));
	text[strcspn(text, "\n")] = 0;
	scoped_free char *there = text_format(" %s ", text);
	while ((name = strsep(&rest, ","))) {
		scoped_free char *word = text_format(" %s ", name);
		if (!strstr(there, word))
			return check_failed("the cgroup controller %s is missing; there are: %s", name, text[0] ? text : "none");
	}
	return CHECK_PASSED;
}
