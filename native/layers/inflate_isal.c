/* SPDX-License-Identifier: Apache-2.0 */
/* Decompresses gzip with the library ISA-L, which is faster than zlib. It is compiled only where ISA-L is installed.
 * inflate.c calls it. */
#ifdef IMAGE_ISAL
#define _GNU_SOURCE
#include <isa-l/igzip_lib.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "inflate_gzip.h"

struct image_gzip {
	struct inflate_state state;
	bool between; /* no member has begun, or the last one has ended */
	bool any;
};

static void begin_member(struct image_gzip *gzip)
{
	isal_inflate_reset(&gzip->state);
	gzip->state.crc_flag = ISAL_GZIP;
	gzip->between = true;
}

struct image_gzip *image_gzip_new(void)
{
	struct image_gzip *gzip = malloc(sizeof(*gzip));

	if (!gzip)
		return NULL;
	isal_inflate_init(&gzip->state);
	begin_member(gzip);
	gzip->any = false;
	return gzip;
}

void image_gzip_free(struct image_gzip *gzip)
{
	free(gzip);
}

int image_gzip_some(struct image_gzip *gzip, const unsigned char **in, size_t *in_left, unsigned char **out,
		    size_t *out_left, struct image_error *err)
{
	struct inflate_state *state = &gzip->state;

	state->next_in = (uint8_t *)*in;
	state->avail_in = (uint32_t)*in_left;
	state->next_out = *out;
	state->avail_out = (uint32_t)*out_left;
	do {
		if (gzip->between) {
			/* Zeros after the last member are padding. */
			while (gzip->any && state->avail_in && !*state->next_in) {
				state->next_in++;
				state->avail_in--;
			}
			if (!state->avail_in)
				break;
			gzip->between = false;
			gzip->any = true;
		}
		int result = isal_inflate(state);

		if (result != ISAL_DECOMP_OK && result != ISAL_END_INPUT && result != ISAL_OUT_OVERFLOW)
			return image_fail(err, IMAGE_FAULT_SOURCE, "", "damaged gzip data (ISA-L's error %d)",
					  result);
		if (state->block_state == ISAL_BLOCK_FINISH)
			begin_member(gzip);
	} while (state->avail_in && state->avail_out);
	*in = state->next_in;
	*in_left = state->avail_in;
	*out = state->next_out;
	*out_left = state->avail_out;
	return 0;
}

bool image_gzip_is_complete(const struct image_gzip *gzip)
{
	return gzip->any && gzip->between;
}

const char *image_gzip_library(void)
{
	return "isa-l";
}
#endif
