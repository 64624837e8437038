/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a squashfs file or a container root from an image's configuration and layers. */
#ifndef IMPORTING_PRODUCE_H
#define IMPORTING_PRODUCE_H

#include "native/layers/layers.h"
#include "native/squashfs/squashfs.h"
#include "image_config.h"

struct produce_request {
	const char *uri; /* for the provenance and messages */
	const struct image_config *config;
	struct image_layers_request layers; /* `progress` and its context are set here */
	void *layers_context;               /* for open_layer */
	unsigned long long total;           /* bytes of all layers as they are stored; 0: not known */
	/* Whether a layer ended early for a reason that is known better elsewhere; tells the user. May be NULL. */
	bool (*failure)(void *context);
	/* Whether its failure matters to nobody, because another way is tried: then nothing is told. Gets advanced_context. May be
	 * NULL. */
	bool (*failure_is_handled)(void *context, bool before);
	/* Called while it goes on, a few times a second at most. May be NULL. */
	void (*advanced)(void *context, unsigned long long done, unsigned long long total);
	void *advanced_context;
	const struct settings *settings;
};

/* Writes the image to `fd`, from its beginning. Returns 0, or -1 after a message. */
int produce_squashfs(const struct produce_request *request, int fd, struct squashfs_summary *summary);

/* Writes the files into the empty directory `root`. Returns 0, or -1 after a message. */
int produce_root(const struct produce_request *request, int root);

#endif
