/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that the GPUs that a node has in Slurm's configuration are there and healthy, by nvidia-smi. node_checks.c
 * calls it.
 *
 * A value that a GPU or a driver does not have ("[N/A]", "[Not Supported]") counts neither way.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "native/base/program.h"
#include "native/base/scoped.h"
#include "native/base/text.h"

#define MOST_OUTPUT (256 * 1024)
#define MOST_FIELDS 16
/* nvidia-smi(1): an argument, as a field that this driver does not know, is wrong. */
#define SMI_WRONG_ARGUMENT 2

/* GPUs in the node's line for slurmd (Gres=gpu:a100:4,gpu:2,fpga:1); `type` is of the last that has one. 0: none. */
static unsigned declared_gpus(char *type, size_t size)
{
	scoped_free char *line = check_fact("node");
	char *found = line ? strstr(line, "Gres=") : NULL, *word;
	unsigned sum = 0;

	*type = 0;
	if (!found)
		return 0;
	found += strlen("Gres=");
	found[strcspn(found, " ")] = 0;
	while ((word = strsep(&found, ","))) {
		char *colon = strrchr(word, ':');
		if (strcmp(word, "gpu") && !text_starts(word, "gpu:"))
			continue;
		sum += colon && isdigit((unsigned char)colon[1]) ? (unsigned)strtoul(colon + 1, NULL, 10) : 1;
		if (colon > word + 3)
			snprintf(type, size, "%.*s", (int)(colon - word - 4), word + 4);
	}
	return sum;
}

/* What nvidia-smi says to a query; its status then, or that of a check that ends with it in `verdict`. */
static char *query(const char *first, const char *second, int *verdict)
{
	const char *program_name = check_word("smi", "nvidia-smi");
	scoped_list words = { 0 };
	scoped_buffer output = { 0 };
	struct jail_error err = { 0 };

	text_list_add(&words, program_name);
	text_list_add(&words, first);
	if (second)
		text_list_add(&words, second);
	const struct program program = { .arguments = words.items, .output = &output, .most = MOST_OUTPUT };
	int status = program_run(&program, &err);
	char *text = text_copy(output.text ? output.text : "", output.length);
	if (!status)
		return text;
	text[strcspn(text, "\r\n")] = 0;
	if (status < 0 || status == 126 || status == 127)
		*verdict = check_could_not_run("%s cannot be run", program_name);
	else if (status == SMI_WRONG_ARGUMENT)
		*verdict = check_could_not_run("nvidia-smi does not know a field: %.150s", jail_one_line(text));
	else
		*verdict = check_failed("the driver does not answer: nvidia-smi, status %d: %.120s", status, jail_one_line(text));
	free(text);
	return NULL;
}

/* The fields of a line of CSV. */
static size_t split(char *line, char *fields[MOST_FIELDS])
{
	size_t n = 0;
	char *field;

	while (n < MOST_FIELDS && (field = strsep(&line, ","))) {
		while (*field == ' ')
			field++;
		for (size_t length = strlen(field); length && isspace((unsigned char)field[length - 1]);)
			field[--length] = 0;
		fields[n++] = field;
	}
	return n;
}

/* Calls `look` with each line of `text` that has `n` fields, until one fails. A line that has not: the output is another's. */
static int each_line(char *text, size_t n, int (*look)(char *fields[MOST_FIELDS]))
{
	char *rest = text, *line, *fields[MOST_FIELDS];
	int status = CHECK_PASSED;

	while (status == CHECK_PASSED && (line = strsep(&rest, "\n"))) {
		if (!line[strspn(line, " \t\r")])
			continue;
		if (split(line, fields) != n)
			return check_could_not_run("nvidia-smi says what no query asks for: %.100s", jail_one_line(line));
		status = look(fields);
	}
	return status;
}

/* "NVIDIA A100-SXM4-40GB" is an a100, and an nvidia_a100, as Slurm's own detection has it. */
static bool is_of_type(const char *name, const char *type)
{
	scoped_free char *plain = text_copy(name, strlen(name)), *wanted = text_copy(type, strlen(type));

	for (char *text = plain; *text; text++)
		*text = *text == ' ' ? '_' : (char)tolower((unsigned char)*text);
	for (char *text = wanted; *text; text++)
		*text = (char)tolower((unsigned char)*text);
	return strstr(plain, wanted);
}

static unsigned expected_gpus, seen_gpus;
static char expected_type[64];

static int count_one(char *fields[MOST_FIELDS])
{
	seen_gpus++;
	return is_of_type(fields[1], expected_type) ? CHECK_PASSED :
						      check_failed("GPU %s is a %s, and the node declares %s", fields[0], fields[1], expected_type);
}

static int look_for_gpus(void)
{
	int status = CHECK_COULD_NOT_RUN;
	scoped_free char *text = query("--query-gpu=index,name,pci.bus_id", "--format=csv,noheader,nounits", &status);

	if (!text || (status = each_line(text, 3, count_one)))
		return status;
	return seen_gpus < expected_gpus
		       ? check_failed("%u of %u GPUs that the node declares are there", seen_gpus, expected_gpus)
		       : CHECK_PASSED;
}

static bool is_above_zero(const char *field)
{
	return strtoull(field, NULL, 10) > 0;
}

static int look_for_errors(char *fields[MOST_FIELDS])
{
	if (is_above_zero(fields[1]))
		return check_failed("GPU %s has had %s uncorrected memory errors since it was reset", fields[0], fields[1]);
	return CHECK_PASSED;
}

static int look_at_rows(char *fields[MOST_FIELDS])
{
	if (!strcasecmp(fields[1], "Yes") || !strcmp(fields[1], "1"))
		return check_failed("GPU %s could not replace a row of its memory: the board is to be exchanged", fields[0]);
	return CHECK_PASSED;
}

#define CSV "--format=csv,noheader,nounits"
static int ask_for_errors(void)
{
	int status = CHECK_COULD_NOT_RUN;
	scoped_free char *text = query("--query-gpu=pci.bus_id,ecc.errors.uncorrected.volatile.total", CSV, &status);

	if (!text || (status = each_line(text, 2, look_for_errors)))
		return status;
	scoped_free char *rows = query("--query-remapped-rows=gpu_bus_id,remapped_rows.failure", CSV, &status);
	return rows ? each_line(rows, 2, look_at_rows) : status;
}

static int look_at_width(char *fields[MOST_FIELDS])
{
	unsigned long now = strtoul(fields[1], NULL, 10), most = strtoul(fields[2], NULL, 10);

	if (now && now < most)
		return check_failed("GPU %s has %lu lanes of PCIe, of %lu", fields[0], now, most);
	/* An idle GPU lowers the speed of its link. */
	unsigned long generation = strtoul(fields[3], NULL, 10), newest = strtoul(fields[4], NULL, 10);
	if (!strcmp(fields[5], "P0") && generation && generation < newest)
		return check_failed("GPU %s has PCIe %lu at full speed, and could have %lu", fields[0], generation, newest);
	return CHECK_PASSED;
}

/* "GPU 0: NAME (UUID: ...)", and below it "Link 3: 25 GB/s" or "Link 3: <inactive>". A GPU of which none is active has no bridge. */
static int look_at_nvlink(char *text)
{
	char *rest = text, *line, gpu[32] = "", down[32] = "";
	bool any = false;

	for (;;) {
		line = strsep(&rest, "\n");
		if (!line || text_starts(line, "GPU ")) {
			if (any && down[0])
				return check_failed("%s: %s of NVLink is down", gpu, down);
			if (!line)
				return CHECK_PASSED;
			snprintf(gpu, sizeof(gpu), "%.*s", (int)strcspn(line, ":"), line);
			any = false;
			down[0] = 0;
		}
		line += strspn(line, " \t");
		if (!text_starts(line, "Link "))
			continue;
		if (strcasestr(line, "inactive"))
			snprintf(down, sizeof(down), "%.*s", (int)strcspn(line, ":"), line);
		else if (strstr(line, "GB/s"))
			any = true;
	}
}

static int ask_for_links(void)
{
	int status = CHECK_COULD_NOT_RUN;
	scoped_free char *text = query("--query-gpu=pci.bus_id,pcie.link.width.current,pcie.link.width.max,pcie.link.gen.current,"
				       "pcie.link.gen.max,pstate", CSV, &status);

	if (!text || (status = each_line(text, 6, look_at_width)))
		return status;
	scoped_free char *links = query("nvlink", "--status", &status);
	return links ? look_at_nvlink(links) : status;
}

static int look_at_state(char *fields[MOST_FIELDS])
{
	if (!strcasecmp(fields[1], "Disabled"))
		return check_failed("GPU %s has no persistence mode: the first program of each job waits for the driver", fields[0]);
	if (!strcasecmp(fields[2], "Active"))
		return check_failed("GPU %s is slowed by its hardware: heat, or power", fields[0]);
	return CHECK_PASSED;
}

static int look_at_pending(char *fields[MOST_FIELDS])
{
	if (!strcasecmp(fields[1], "Yes") || !strcmp(fields[1], "1"))
		return check_failed("GPU %s replaces a row of its memory when it is reset", fields[0]);
	return CHECK_PASSED;
}

static int look_at_process(char *fields[MOST_FIELDS])
{
	return check_failed("no job runs, and process %s has GPU %s", fields[1], fields[0]);
}

static int ask_for_state(void)
{
	int status = CHECK_COULD_NOT_RUN;
	scoped_free char *text = query("--query-gpu=pci.bus_id,persistence_mode,clocks_throttle_reasons.hw_slowdown", CSV, &status);

	if (!text || (status = each_line(text, 3, look_at_state)))
		return status;
	scoped_free char *rows = query("--query-remapped-rows=gpu_bus_id,remapped_rows.pending", CSV, &status);
	if (!rows || (status = each_line(rows, 2, look_at_pending)) || check_has_jobs())
		return status;
	scoped_free char *processes = query("--query-compute-apps=gpu_bus_id,pid", CSV, &status);
	return processes ? each_line(processes, 2, look_at_process) : status;
}

/* In a process of its own: a driver that hangs keeps whoever asks it in the kernel. */
static int ask(int (*work)(void))
{
	if (!(expected_gpus = declared_gpus(expected_type, sizeof(expected_type))))
		return check_could_not_run("this node declares no GPUs");
	return check_bounded(work, "the GPUs' driver", (unsigned)check_number("answer", 20));
}

int check_gpu(void)
{
	return ask(look_for_gpus);
}

int check_gpu_errors(void)
{
	return ask(ask_for_errors);
}

int check_gpu_links(void)
{
	return ask(ask_for_links);
}

int check_gpu_state(void)
{
	return ask(ask_for_state);
}
