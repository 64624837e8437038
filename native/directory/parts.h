/* SPDX-License-Identifier: Apache-2.0 */
/* Structs and functions that only the files of native/directory use. */
#ifndef IMAGE_DIRECTORY_PARTS_H
#define IMAGE_DIRECTORY_PARTS_H

#include <pthread.h>

#include "directory.h"
#include "native/layers/thread_pool.h"

#define FOLDER_CHUNKS 4096
#define FOLDER_CHUNK 65536u

enum folder_state { FOLDER_ABSENT, FOLDER_BEING_MADE, FOLDER_READY };

/* A regular file, link, fifo or device to be made. */
struct item {
	uint32_t node, folder;
	char kind;
	struct image_record record;
	const unsigned char *data; /* of a small file, in `block` or `copy` */
	struct image_block *block;
	unsigned char *copy;
	char *target; /* then the attributes follow */
	const unsigned char *xattrs;
};

struct image_directory {
	struct image_tree *tree;
	struct image_records *records;
	struct image_directory_request request;
	struct thread_pool *work;
	uint32_t uid, gid; /* what a new file has of itself */
	atomic_bool masked; /* a thread could not have a mask of its own: modes need chmod */
	pthread_mutex_t mutex;
	pthread_cond_t made;
	_Atomic(atomic_uchar *) folders[FOLDER_CHUNKS];
	struct batch *batches[2]; /* of small and of medium files */
	atomic_size_t copied;     /* bytes that items have copies of */
	struct stream_file *stream;
	struct item pending; /* a small file whose content is coming */
	bool has_pending;
	bool skipping; /* the content of a file of another shard */
	uint32_t last_node;     /* the node of the last file */
	unsigned replaced; /* entries that a later one of their layer replaced */
	uint32_t *links;
	size_t n_links, links_capacity;
	struct image_lost losses[IMAGE_N_LOSSES];
	struct image_directory_count counts;
};

/* pick_content.c: the content of `item`, in memory, or as a file of this temporary name. */
int pick_small(struct image_directory *directory, const struct item *item, struct image_error *err);
int pick_create(struct image_directory *directory, const struct item *item, char name[32], struct image_error *err);
int pick_end(struct image_directory *directory, const struct item *item, const char *name, int *fd,
	     struct image_error *err);
int pick_replace(struct image_directory *directory, uint32_t node, uint32_t heir, struct image_error *err);

#define BATCH_ITEMS 32

struct batch {
	struct image_job job;
	struct image_directory *directory;
	unsigned count;
	size_t bytes;
	struct item items[BATCH_ITEMS];
};

/* batch.c: makes what is in it, and its records. */
int batch_run(struct image_job *job, void *state, bool stopped, struct image_error *err);

#define KEPT_FOLDERS 8

/* State of a thread: descriptors of the directories that it used last. */
struct writer_state {
	struct { uint32_t folder; int fd; unsigned used; } kept[KEPT_FOLDERS];
	unsigned clock;
	unsigned char *buffer;
	size_t capacity;
};

/* file.c */
int write_small(struct image_directory *directory, struct writer_state *writer, const struct item *item,
		struct image_error *err);
int write_special(struct image_directory *directory, struct writer_state *writer, const struct item *item,
		  struct image_error *err);
int close_file(const struct image_directory *directory, const struct item *item, int *fd, struct image_error *err);
int write_all(struct image_directory *directory, const struct item *item, int fd, const unsigned char *data,
	      size_t length, uint64_t offset, struct image_error *err);

void writer_state_begin(void *state, void *context);
void writer_state_end(void *state);

/* open_directories.c: O_PATH descriptor of a directory, which is made when it is not there; it stays the
 * writer's, for the next few calls. -1. */
int folder_open(struct image_directory *directory, struct writer_state *writer, uint32_t folder, struct image_error *err);
void folder_set_absent(struct image_directory *directory, uint32_t folder);

/* file.c */
struct stream_file;
void item_release(struct image_directory *directory, struct item *item);
struct stream_file *stream_file_new(struct image_directory *directory, const struct item *item);
struct image_job *stream_file_job(struct stream_file *file);
int stream_file_add(struct stream_file *file, const struct image_slice *slice, struct image_error *err);
void stream_file_end(struct stream_file *file, bool whole); /* gives the caller's part of it up */

/* metadata.c. `fd` is the file's, or -1: then `folder` and `name`. */
int set_metadata(struct image_directory *directory, uint32_t node, int folder, const char *name, int fd, char kind,
		 const struct image_record *record, const unsigned char *xattrs, struct image_error *err);

/* Notes the loss of something, or fails with it where losses are not allowed. */
int lose(struct image_directory *directory, enum image_loss loss, uint32_t node, int number, struct image_error *err);

/* Whether an errno says that the file system has no such thing. */
bool cannot_hold(int number);

/* Whether an earlier run has written the file to its end. */
bool is_whole(int folder, const char *name, const struct item *item);

/* resume.c: whether a small file that is whole has its content, too. */
bool has_content(int folder, const char *name, const struct item *item);

/* The file's bytes there become `data`, or zeros, if they are others: then it was `mended`. */
int mend_part(struct image_directory *directory, const struct item *item, int fd, const unsigned char *data,
	      size_t length, uint64_t offset, bool *mended, struct image_error *err);
int mend_hole(struct image_directory *directory, const struct item *item, int fd, uint64_t from, uint64_t to,
	      bool *mended, struct image_error *err);

int fail_at(const struct image_directory *directory, uint32_t node, const char *call, int number,
	    struct image_error *err);

/* directory.c: hands what waits to be written together to a thread. */
int directory_flush(struct image_directory *directory, struct image_error *err);

/* replace.c: see sink.h */
int directory_replace(void *sink, uint32_t node, uint32_t heir, struct image_error *err);

/* file.c */
int copy_name(const struct image_tree *tree, uint32_t node, char name[IMAGE_NAME_LONGEST + 1]);
uint32_t folder_of(const struct image_tree *tree, uint32_t node);

#endif
