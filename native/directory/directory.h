/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the merged layers of an image into a directory, by many threads.
 *
 * The target is a folder that only root can enter. Directories are made when the first thing in them comes, with mode
 * 0700; their own modes, owners and times come last, for writing into one changes its time. A file is whole when its
 * time is set, which is done last: that is how a run that was killed is continued.
 */
#ifndef IMAGE_DIRECTORY_H
#define IMAGE_DIRECTORY_H

#include <stdatomic.h>

#include "pick.h"
#include "native/layers/records.h"
#include "native/layers/sink.h"
#include "native/layers/tree.h"

/* What a target may be unable to hold. */
enum image_loss {
	IMAGE_LOSS_OWNER,
	IMAGE_LOSS_MODE,
	IMAGE_LOSS_TIME,
	IMAGE_LOSS_CAPABILITY, /* security.capability */
	IMAGE_LOSS_ACL,        /* system.posix_acl_* */
	IMAGE_LOSS_ATTRIBUTE,  /* any other extended attribute */
	IMAGE_LOSS_DEVICE,
	IMAGE_LOSS_FIFO,
	IMAGE_LOSS_SYMLINK,
	IMAGE_LOSS_HARDLINK, /* becomes a copy */
	IMAGE_N_LOSSES,
};

struct image_lost {
	atomic_ullong count;
	char first[256]; /* path of one that was lost */
};

struct image_directory_request {
	int root;      /* the folder; stays the caller's */
	unsigned jobs; /* threads that write */
	bool resume;   /* there may be something in the folder, which an earlier run wrote from the same source */
	bool lossy;    /* go on where the target cannot hold something, and count it */
	unsigned shard, shards; /* write one of so many parts of the files; 0, 1: all */
	const struct image_pick *pick; /* NULL; or `root` is a folder for the content of some files */
};

struct image_directory;

struct image_directory *image_directory_new(struct image_tree *tree, struct image_records *records,
					    const struct image_directory_request *request, struct image_error *err);
/* Who tells it of files asks by `interrupt` whether to go on while it waits for them to be written. */
void image_directory_ask(struct image_directory *directory, const struct image_interrupt *interrupt);
void image_directory_free(struct image_directory *directory);
struct image_sink image_directory_sink(struct image_directory *directory);

/* After the merge: waits for the files, makes the links and the empty directories. */
int image_directory_finish(struct image_directory *directory, struct image_error *err);

/* After every shard has finished: owners, modes, times and attributes of all directories. */
int image_directory_seal(struct image_directory *directory, struct image_error *err);

/* Whether the node's file, or the file that it is a link to, is one of this shard's. */
bool image_directory_has(const struct image_directory *directory, uint32_t node);

/* IMAGE_N_LOSSES of them. */
const struct image_lost *image_directory_losses(const struct image_directory *directory);

/* The node whose content came last, since this was last asked; IMAGE_ROOT: none did. */
uint32_t image_directory_last_node(struct image_directory *directory);

/* How often something was replaced by a later entry of its layer. */
unsigned image_directory_replaced(const struct image_directory *directory);

struct image_directory_count {
	atomic_ullong files, bytes, kept; /* kept: files that an earlier run had written */
};
struct image_directory_count *image_directory_counts(struct image_directory *directory);

#endif
