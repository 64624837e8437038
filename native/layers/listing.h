/* SPDX-License-Identifier: Apache-2.0 */
/* A layer listing: the entries of a layer without their content. It is written while a layer is read, and read in its
 * place later.
 *
 * It has the digests of the files that were part of the tree for which the layer was read; others were not hashed.
 * Entries keep their order, whiteouts among them, so merging listings is merging layers. It is for one machine, in
 * its byte order, and ends with a SHA-256 of all before it.
 */
#ifndef IMAGE_LISTING_H
#define IMAGE_LISTING_H

#include "entry.h"
#include "records.h"

struct image_listing;

/* `fd` is of a new file, open to read and write; it stays the caller's. */
struct image_listing *image_listing_new(int fd, struct image_error *err);
void image_listing_free(struct image_listing *listing);

/* `node` is whose record will have the content's digest; IMAGE_ROOT: none. */
int image_listing_add(struct image_listing *listing, const struct image_entry *entry, uint32_t node,
		      struct image_error *err);

/* This layer cannot be told by a listing: the file is left empty. */
void image_listing_give_up(struct image_listing *listing);

/* After every digest has been recorded. */
int image_listing_finish(struct image_listing *listing, struct image_records *records, struct image_error *err);

struct image_listing_reader;

/* Refuses what is damaged or was written in another form. */
struct image_listing_reader *image_listing_open(int fd, struct image_error *err);
void image_listing_close(struct image_listing_reader *reader);

/* 1 and the next entry, valid as long as the reader is; 0: the end; -1. */
int image_listing_next(struct image_listing_reader *reader, const struct image_entry **entry,
		       struct image_error *err);

#endif
