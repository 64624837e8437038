/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the parser of what enroot and hooks print. It runs in forks of slurmstepd, so it must survive any text. */
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#include "native/base/text.h"
#include "native/base/scoped.h"
#include "native/testing/fuzz.h"
#include "pyxis/step/program_log.h"
#include "pyxis/step/disk_space.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int log = -1;
	struct jail_error err;
	off_t end = 0;

	if (log < 0)
		log = pyxis_log_open(&err);
	MUST(log >= 0 && !pyxis_log_clear(log, &err) && write(log, data, size) == (ssize_t)size);
	scoped_free char *text = pyxis_log_text(log, 0, &end);
	if (!text) {
		MUST(!size);
		return 0;
	}
	MUST(end == (off_t)size && !memcmp(text, data, size));
	scoped_free char *reason = pyxis_log_reason(text);
	scoped_free char *latest = pyxis_log_latest(text);
	scoped_free char *advice = pyxis_disk_space_advice(text, "/", 0);
	MUST(!reason || strstr(text, "[ERROR] "));
	MUST(!latest || !strchr(latest, '\n'));
	MUST(!advice || strlen(advice) < size + 400);
	return 0;
}
