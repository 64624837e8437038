/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the SHA-256 of a stream of bytes with OpenSSL. Files of this folder, enroot/ and other libraries in
 * native/ call it. */
#define _GNU_SOURCE
#include "hash.h"

int image_hash_begin(struct image_hash *hash)
{
	hash->context = EVP_MD_CTX_new();
	if (!hash->context)
		return -1;
	if (EVP_DigestInit_ex(hash->context, EVP_sha256(), NULL) != 1) {
		image_hash_drop(hash);
		return -1;
	}
	return 0;
}

void image_hash_add(struct image_hash *hash, const void *data, size_t length)
{
	EVP_DigestUpdate(hash->context, data, length);
}

int image_hash_add_zeros(struct image_hash *hash, unsigned long long length, const atomic_bool *stopped)
{
	static const unsigned char zeros[65536];

	for (unsigned long long part; length; length -= part) {
		if (atomic_load_explicit(stopped, memory_order_relaxed))
			return -1;
		part = length < sizeof(zeros) ? length : sizeof(zeros);
		EVP_DigestUpdate(hash->context, zeros, part);
	}
	return 0;
}

void image_hash_end(struct image_hash *hash, unsigned char digest[32])
{
	EVP_DigestFinal_ex(hash->context, digest, NULL);
	image_hash_drop(hash);
}

void image_hash_drop(struct image_hash *hash)
{
	EVP_MD_CTX_free(hash->context);
	hash->context = NULL;
}

void image_hash_digits(const unsigned char digest[32], char text[65])
{
	static const char digits[] = "0123456789abcdef";

	for (int i = 0; i < 32; i++) {
		text[2 * i] = digits[digest[i] >> 4];
		text[2 * i + 1] = digits[digest[i] & 15];
	}
	text[64] = 0;
}
