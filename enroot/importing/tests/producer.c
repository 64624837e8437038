/* SPDX-License-Identifier: Apache-2.0 */
/* A program for tests of the cache: it uses the cache as an import does, but makes up the content instead of
 * downloading it.
 *
 *   producer image NAME SIZE PACE OUTPUT [private|late]  acquire the image NAME, make it if it is not there, deliver it to OUTPUT
 *   producer blob NAME SIZE PACE [corrupt|private|late]  the same for a layer, prints the digest of its bytes; corrupt: wrong bytes
 *   producer hold NAME                              hold the image NAME until standard input ends
 *   producer cache ...                              "enroot cache"
 *
 * private: it takes credentials, as is known before; late: as shows when it comes. SIZE in KiB, PACE in milliseconds
 * for each 64 KiB. Each that is made is a line in the file $PRODUCER_LOG.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "enroot/importing/commands.h"
#include "native/base/scoped.h"
#include "native/layers/hash.h"
#include "native/base/report.h"
#include "native/cache/cache.h"
#include "native/cache/content_digest.h"

#define PART 65536

static void digest_of(const char *name, char digest[72])
{
	struct image_hash hash;
	unsigned char bytes[32];

	if (image_hash_begin(&hash))
		exit(3);
	image_hash_add(&hash, name, strlen(name));
	image_hash_end(&hash, bytes);
	memcpy(digest, "sha256:", 7);
	image_hash_digits(bytes, digest + 7);
}

/* Bytes that belong to this name and place. */
static void invent(const char *name, unsigned long part, unsigned char bytes[PART])
{
	unsigned long long state = 1469598103934665603ULL + part;

	for (; *name; name++)
		state = (state ^ (unsigned char)*name) * 1099511628211ULL;
	for (size_t i = 0; i < PART; i += sizeof(state)) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		memcpy(bytes + i, &state, sizeof(state));
	}
}

static void log_made(const char *name)
{
	const char *log = getenv("PRODUCER_LOG");
	scoped_free char *line = text_format("%s\n", name);
	scoped_fd fd = log ? open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666) : -1;

	if (fd >= 0 && write(fd, line, strlen(line)) < 0)
		exit(3);
}

struct order {
	const char *name;
	unsigned long parts;
	struct timespec pace;
};

static int make(const struct order *order, int fd, struct cache_image *image, struct cache_blob *blob)
{
	unsigned char bytes[PART];

	log_made(order->name);
	for (unsigned long i = 0; i < order->parts; i++) {
		invent(order->name, i, bytes);
		if (text_write(fd, (const char *)bytes, PART))
			return report_error("write: %s", strerrordesc_np(errno));
		nanosleep(&order->pace, NULL);
		if (image && i % 4 == 0)
			cache_progress(image, (i + 1) * PART, order->parts * PART);
		if (blob && i % 4 == 0)
			cache_blob_progress(blob, (i + 1) * PART, order->parts * PART);
	}
	return 0;
}

static int run_image(struct cache *cache, const struct order *order, const char *output, const char *how)
{
	static const char *const options[] = { "producer 1", NULL };
	scoped_free char *reference = text_format("docker://test/%s", order->name);
	struct cache_image image;
	struct jail_error err;
	char digest[72];

	digest_of(order->name, digest);
	const struct cache_request request = { reference, digest, "linux/amd64", options, !how || strcmp(how, "private") };
	cache_acquire(cache, &request, &image);
	int status = 0;
	if (image.state == CACHE_UNUSABLE) {
		puts("unusable");
		log_made(order->name);
	} else {
		puts(image.state == CACHE_FOUND ? "found" : "made");
		if (image.state == CACHE_DRAFT)
			status = make(order, image.fd, &image, NULL) || (cache_commit(&image, !how, &err) && report_failure(&err));
		if (!status && strcmp(output, "-"))
			status = cache_deliver(&image, output, true, &err) ? report_failure(&err) : 0;
		if (!status)
			puts(image.path);
		cache_remember(cache, reference, "linux/amd64", digest);
	}
	cache_release(&image);
	return status;
}

/* The layer's digest is of its bytes, as those of registries are. */
static void blob_digest(const struct order *order, char digest[72])
{
	struct image_hash hash;
	unsigned char bytes[PART], result[32];

	if (image_hash_begin(&hash))
		exit(3);
	for (unsigned long i = 0; i < order->parts; i++) {
		invent(order->name, i, bytes);
		image_hash_add(&hash, bytes, PART);
	}
	image_hash_end(&hash, result);
	memcpy(digest, "sha256:", 7);
	image_hash_digits(result, digest + 7);
}

static int run_blob(struct cache *cache, struct order *order, const char *how)
{
	struct cache_blob blob;
	struct jail_error err;
	char digest[72], got[65];
	bool corrupt = how && !strcmp(how, "corrupt"), known = how && !strcmp(how, "private");

	blob_digest(order, digest);
	for (int i = 0; i < 3; i++) {
		cache_blob_acquire(cache, digest, order->parts * PART, !known, &blob);
		puts(blob.state == CACHE_FOUND ? blob.foreign ? "foreign" : "found" : blob.state == CACHE_DRAFT ? "made" : "unusable");
		struct order other = *order;
		if (corrupt)
			other.name = "something else";
		if (blob.state == CACHE_DRAFT && (make(&other, blob.fd, NULL, &blob) || cache_blob_commit(&blob, !how || corrupt, &err)))
			return report_failure(&err);
		if (blob.state == CACHE_UNUSABLE || content_sha256(blob.fd, blob.size, got, &err))
			return 1;
		bool right = corrupt || !strcmp(got, digest + 7);
		if (!right)
			cache_blob_reject(&blob);
		cache_blob_release(&blob);
		if (right) {
			printf("sha256:%s\n", got);
			return 0;
		}
	}
	return 1;
}

static int hold(struct cache *cache, const struct order *order)
{
	static const char *const options[] = { "producer 1", NULL };
	scoped_free char *reference = text_format("docker://test/%s", order->name);
	struct cache_image image;
	char digest[72], byte;

	digest_of(order->name, digest);
	const struct cache_request request = { reference, digest, "linux/amd64", options, true };
	bool found = cache_find(cache, &request, &image);
	puts(found ? "found" : "absent");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	cache_release(&image);
	return !found;
}

int main(int argc, char **argv)
{
	struct settings settings;
	struct jail_error err;
	int status = 2;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1 && !strcmp(argv[1], "cache"))
		return cache_command(argc - 1, argv + 1);
	if (argc < 3)
		return 2;
	if (settings_load(&settings, NULL, &err))
		return report_failure(&err);
	long pace = argc > 4 ? atol(argv[4]) : 0;
	struct order order = { argv[2], argc > 3 ? strtoul(argv[3], NULL, 10) / 64 : 1,
			       { .tv_sec = pace / 1000, .tv_nsec = pace % 1000 * 1000000 } };
	struct cache *cache = cache_open(&settings);
	if (!strcmp(argv[1], "image") && argc > 5)
		status = run_image(cache, &order, argv[5], argc > 6 ? argv[6] : NULL);
	else if (!strcmp(argv[1], "blob") && argc > 4)
		status = run_blob(cache, &order, argc > 5 ? argv[5] : NULL);
	else if (!strcmp(argv[1], "hold"))
		status = hold(cache, &order);
	cache_close(cache);
	settings_free(&settings);
	return status;
}
