/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the SHA-256 of a file with OpenSSL's libcrypto. check.c calls it. The library is loaded at run time, not
 * linked: it comes with Python's ssl, mostly without its headers. */
#define _GNU_SOURCE
#include "digest.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CHUNK = 256 * 1024, DIGEST_SIZE = 32 };

static struct {
	void *(*context_new)(void);
	void (*context_free)(void *);
	const void *(*sha256)(void);
	int (*init)(void *, const void *, void *);
	int (*update)(void *, const void *, size_t);
	int (*final)(void *, unsigned char *, unsigned *);
	bool loaded;
} crypto;

static pthread_once_t once = PTHREAD_ONCE_INIT;

struct volume_digest {
	void *context;
	unsigned char buffer[CHUNK];
};

static void load(void)
{
	static const char *const names[] = { "libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.so" };
	void *library = NULL;

	for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++)
		library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return;
	/* POSIX says that dlsym's result may be stored so. */
	*(void **)&crypto.context_new = dlsym(library, "EVP_MD_CTX_new");
	*(void **)&crypto.context_free = dlsym(library, "EVP_MD_CTX_free");
	*(void **)&crypto.sha256 = dlsym(library, "EVP_sha256");
	*(void **)&crypto.init = dlsym(library, "EVP_DigestInit_ex");
	*(void **)&crypto.update = dlsym(library, "EVP_DigestUpdate");
	*(void **)&crypto.final = dlsym(library, "EVP_DigestFinal_ex");
	crypto.loaded = crypto.context_new && crypto.context_free && crypto.sha256 && crypto.init &&
			crypto.update && crypto.final;
}

struct volume_digest *volume_digest_new(struct volume_error *err)
{
	struct volume_digest *digest;

	pthread_once(&once, load);
	if (!crypto.loaded) {
		snprintf(err->message, sizeof err->message, "there is no libcrypto to hash with");
		err->number = ENOENT;
		return NULL;
	}
	digest = malloc(sizeof *digest);
	if (digest)
		digest->context = crypto.context_new();
	if (!digest || !digest->context) {
		free(digest);
		snprintf(err->message, sizeof err->message, "out of memory");
		err->number = ENOMEM;
		return NULL;
	}
	return digest;
}

void volume_digest_free(struct volume_digest *digest)
{
	if (!digest)
		return;
	crypto.context_free(digest->context);
	free(digest);
}

int volume_digest_file(struct volume_digest *digest, int fd, uint64_t most, char hex[65], uint64_t *bytes)
{
	static const char digits[] = "0123456789abcdef";
	unsigned char sum[DIGEST_SIZE];
	unsigned length = 0;
	uint64_t total = 0;

	if (!crypto.init(digest->context, crypto.sha256(), NULL))
		return ENOMEM;
	for (;;) {
		ssize_t got = read(fd, digest->buffer, sizeof digest->buffer);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return errno;
		if (got == 0)
			break;
		*bytes += (uint64_t)got;
		total += (uint64_t)got;
		if (total > most)
			return EFBIG;
		if (!crypto.update(digest->context, digest->buffer, (size_t)got))
			return EIO;
	}
	if (!crypto.final(digest->context, sum, &length) || length != DIGEST_SIZE)
		return EIO;
	for (unsigned i = 0; i < DIGEST_SIZE; i++) {
		hex[2 * i] = digits[sum[i] >> 4];
		hex[2 * i + 1] = digits[sum[i] & 15];
	}
	hex[2 * DIGEST_SIZE] = '\0';
	return 0;
}
