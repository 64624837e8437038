/* SPDX-License-Identifier: Apache-2.0 */
/* The first fields of Slurm's buffers (buf_t), which are the same in all releases since 20.11. */
#ifndef JAIL_SLURM_BUFFER_H
#define JAIL_SLURM_BUFFER_H

#include <stdint.h>

#define SLURM_BUFFER_MAGIC 0x42554545U

struct slurm_buffer {
	uint32_t magic;
	char *head;
	uint32_t size, processed; /* bytes; that were read or written */
};

#endif
