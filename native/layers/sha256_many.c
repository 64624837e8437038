/* SPDX-License-Identifier: Apache-2.0 */
/* Computes many SHA-256 digests at once, each in a lane of vector registers, for processors without SHA instructions.
 * native/cache and native/directory call it. */
#define _GNU_SOURCE
#include "sha256_many.h"

#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#ifndef __clang__
/* Blocks of 64 bytes between two looks at which lanes have ended. */
#define LONGEST_RUN 64

static const uint32_t initial[8] = {
	0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

static const uint32_t constants[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

struct lane {
	const struct sha256_one *one; /* NULL: nothing */
	const unsigned char *at;
	size_t blocks; /* at `at` */
	bool in_tail;
	unsigned char tail[128]; /* what is left after the whole blocks, padded */
};

static void put_word(unsigned char *to, uint32_t word)
{
	word = __builtin_bswap32(word);
	memcpy(to, &word, 4);
}

/* False: the tail is done too. */
static bool lane_tail(struct lane *lane)
{
	size_t rest = lane->one->length % 64, size = rest < 56 ? 64 : 128;

	if (lane->in_tail)
		return false;
	memset(lane->tail, 0, sizeof(lane->tail));
	if (rest)
		memcpy(lane->tail, lane->one->data + lane->one->length - rest, rest);
	lane->tail[rest] = 0x80;
	put_word(lane->tail + size - 8, (uint32_t)(lane->one->length >> 29));
	put_word(lane->tail + size - 4, (uint32_t)(lane->one->length << 3));
	lane->at = lane->tail;
	lane->blocks = size / 64;
	lane->in_tail = true;
	return true;
}

static void lane_begin(struct lane *lane, const struct sha256_one *one)
{
	lane->one = one;
	lane->at = one->data;
	lane->blocks = one->length / 64;
	lane->in_tail = false;
	if (!lane->blocks)
		lane_tail(lane);
}

/* SHA256_CTX is deprecated, and the one way to go on from a state. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void finish_alone(struct lane *lane, const uint32_t state[8])
{
	SHA256_CTX context;

	SHA256_Init(&context);
	memcpy(context.h, state, 32);
	do
		for (; lane->blocks; lane->blocks--, lane->at += 64)
			SHA256_Transform(&context, lane->at);
	while (lane_tail(lane));
	for (unsigned j = 0; j < 8; j++)
		put_word(lane->one->digest + 4 * j, context.h[j]);
}
#pragma GCC diagnostic pop

#endif

#ifdef __x86_64__
#define WIDE __attribute__((target("avx512f,avx512bw,avx512vl")))
#define NARROW __attribute__((target("avx2")))
#else
#define WIDE
#define NARROW
#endif

/* clang, which the fuzz targets are built with, has other words for shuffles: there each goes alone. */
#ifndef __clang__
#define NAMED(name) name##_16
#define LANES 16
#define TARGET WIDE
#include "sha256_lanes.h"
#undef NAMED
#undef LANES
#undef TARGET
#define NAMED(name) name##_8
#define LANES 8
#define TARGET NARROW
#include "sha256_lanes.h"
#undef NAMED
#undef LANES
#undef TARGET
#endif

enum how { INSTRUCTIONS, LANES_16, LANES_8, ONE };

static enum how find_how(void)
{
#ifdef __clang__
	return ONE;
#elif defined(__x86_64__)
	unsigned a, b, c, d;

	if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && b & bit_SHA)
		return INSTRUCTIONS;
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512vl"))
		return LANES_16;
	return __builtin_cpu_supports("avx2") ? LANES_8 : ONE;
#else
	return INSTRUCTIONS; /* ARMv8 servers have them */
#endif
}

static void one_by_one(const struct sha256_one *all, size_t count)
{
	for (size_t i = 0; i < count; i++)
		EVP_Digest(all[i].data, all[i].length, all[i].digest, NULL, EVP_sha256(), NULL);
}

#ifndef __clang__
/* Longest first: those in the lanes together then end at about the same time. */
static int by_length(const void *a, const void *b)
{
	size_t x = ((const struct sha256_one *)a)->length, y = ((const struct sha256_one *)b)->length;

	return (x < y) - (x > y);
}

void image_sha256_lanes(struct sha256_one *all, size_t count, int wide)
{
	qsort(all, count, sizeof(*all), by_length);
	if (wide)
		hash_16(all, count);
	else
		hash_8(all, count);
}
#else
void image_sha256_lanes(struct sha256_one *all, size_t count, int wide)
{
	(void)wide;
	one_by_one(all, count);
}
#endif

void image_sha256_many(struct sha256_one *all, size_t count)
{
	enum how how = find_how();

	if (how == LANES_16 || how == LANES_8)
		image_sha256_lanes(all, count, how == LANES_16);
	else
		one_by_one(all, count);
}
