/* SPDX-License-Identifier: Apache-2.0 */
/* The image cache: keeps imported images and layers, so that each is downloaded once
 * (docs/decisions/enroot-cache.md).
 *
 * A store is a directory in which one user alone can write. Each user has one of his own (ENROOT_CACHE_PATH), and one
 * in the administrator's directory (ENROOT_SHARED_CACHE_PATH), which the users of a node or cluster share. Images are
 * taken from one's own stores, from root's, and from those of users that ENROOT_SHARED_CACHE_TRUST names. Layers are
 * taken from any store, because each is compared with its digest.
 *
 * A damaged, full or unusable cache fails no import: there is a warning, and the import goes on without it.
 */
#ifndef ENROOT_CACHE_H
#define ENROOT_CACHE_H

#include <sys/types.h>

#include "native/settings/settings.h"

struct cache;

/* Opens the stores that the settings name; removes from one's own what killed imports left. A store that cannot be used
 * is left out after a warning. Never NULL. Threads may share it. */
struct cache *cache_open(const struct settings *settings);
void cache_close(struct cache *cache);

/* What decides about the bytes of an image. */
struct cache_request {
	const char *reference; /* for people: "docker://host/name:tag" */
	const char *digest;    /* "sha256:..." that the reference stands for now: of an index or of a manifest */
	const char *platform;  /* "linux/amd64", with the variant if there is one */
	const char *const *options; /* all else that changes the bytes, NULL behind the last: format, squash options, epoch */
	/* So far nobody was told who asks, so that all may have it: it is begun where it will lie then. cache_commit decides. */
	bool anonymous;
};

enum cache_state {
	CACHE_FOUND,    /* `fd` reads the whole image */
	CACHE_DRAFT,    /* it is yours to make: write it to `fd`, then cache_commit */
	CACHE_UNUSABLE, /* there is nowhere to keep it: make it where it is needed */
	CACHE_BUSY,     /* another makes it */
};

/* One image that is being read or made. */
struct cache_image {
	enum cache_state state;
	int fd;
	char key[65];
	char *path; /* absolute, of a found image; else NULL */
	struct cache_draft *draft;
	struct cache *cache;
	const struct store *store; /* where it lies or will */
	const struct store *locked; /* whose lock it is */
	int lock;                  /* held while it is a draft: others wait; or -1 */
	struct cache_request request; /* its strings are the caller's */
};

/* Finds the image, or waits for whoever imports it (the user is told), or makes a draft. What is found is not trimmed before
 * cache_release. Another's import is waited for while it advances (ENROOT_CACHE_PATIENCE, seconds), and
 * ENROOT_CACHE_WAIT seconds altogether. */
void cache_acquire(struct cache *cache, const struct cache_request *request, struct cache_image *image);

/* The same without waiting, and without a draft: false when it is not there. */
bool cache_find(struct cache *cache, const struct cache_request *request, struct cache_image *image);

/* Tells those who wait; call it several times a second at most. `total` may be 0: not known. */
void cache_progress(struct cache_image *image, unsigned long long done, unsigned long long total);

/* Whether nothing more can be written to the draft: then it is not the image's fault, and another place may have room. */
bool cache_is_full(const struct cache_image *image);

/* The draft is whole: it gets its name, after what was used least is trimmed, and is found from now on. Unless it is
 * `anonymous`, made of nothing but what came without telling anybody who asks, it goes into the personal store, wherever it was
 * begun. Where the quota leaves no room for it, or another process was first, it is a found image all the same. Returns 0 or -1. */
int cache_commit(struct cache_image *image, bool anonymous, struct jail_error *err);

/* At the end, always; a draft that was not committed is removed. */
void cache_release(struct cache_image *image);

/* Makes the file `path` of a found image: a reflink; or a hard link, where nobody else would run what the user may change by
 * it; or a copy. -1: it exists and `force` is false, or it cannot be made. */
int cache_deliver(const struct cache_image *image, const char *path, bool force, struct jail_error *err);

/* What a reference stood for at the last import, for ENROOT_CACHE_OFFLINE: writes "sha256:..."; false: not known. */
bool cache_recall(struct cache *cache, const char *reference, const char *platform, char digest[72]);
void cache_remember(struct cache *cache, const char *reference, const char *platform, const char *digest);

/* A manifest, an index or a configuration by its digest: for struct registry_documents, with a struct cache as its context. `load`
 * gives malloc'ed text, not yet compared with the digest, or NULL. `keep` is best effort. Anonymous are those of shared stores. */
char *cache_document_load(void *cache, const char *digest, size_t *length, bool *anonymous);
void cache_document_keep(void *cache, const char *digest, const char *text, size_t length, bool anonymous);

/* A layer, compressed as the registry has it. */
struct cache_blob {
	enum cache_state state;
	int fd;            /* found: to be read with pread or read from its beginning */
	bool foreign;      /* found in the store of somebody who is not trusted */
	char digest[72];
	unsigned long long size;
	struct cache_draft *draft;
	struct cache *cache;
	const struct store *store;
	const struct store *locked; /* where its lock is */
	int lock;
};

/* Finds it, or waits for whoever downloads it, or makes a draft. `size` is what the manifest says, in bytes; nothing of another
 * size is found. `anonymous`: the image's manifest and configuration came without telling anybody who asks. Then it is begun for
 * all users, and one's own personal store is not asked, which tells nothing of whether others may have it. Whoever reads it MUST
 * compare it with its digest while reading, and call cache_blob_reject when it differs. A draft must not wait for other layers:
 * others wait for it. */
void cache_blob_acquire(struct cache *cache, const char *digest, unsigned long long size, bool anonymous,
			struct cache_blob *blob);
/* The same without waiting: CACHE_BUSY when another downloads it. */
void cache_blob_try(struct cache *cache, const char *digest, unsigned long long size, bool anonymous, struct cache_blob *blob);
/* Whether a layer that was found lies where all users can read it. */
bool cache_blob_is_anonymous(const struct cache_blob *blob);
void cache_blob_progress(struct cache_blob *blob, unsigned long long done, unsigned long long total);

/* The draft is whole, and the caller has compared its digest. Its `fd` reads it from now on. Unless it came `anonymous`, without
 * telling anybody who asks, it goes into the personal store, wherever it was begun. Returns 0 or -1. */
int cache_blob_commit(struct cache_blob *blob, bool anonymous, struct jail_error *err);

/* It is not what its name says. One's own is removed; after one of somebody else, no foreign ones are looked at any more. */
void cache_blob_reject(struct cache_blob *blob);
/* Reading layers failed, foreign ones among them: none is looked at any more. */
void cache_skip_strangers(struct cache *cache);
void cache_blob_release(struct cache_blob *blob);

#endif
