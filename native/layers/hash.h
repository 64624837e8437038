/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the SHA-256 of a stream of bytes with OpenSSL, which uses the processor's SHA instructions. */
#ifndef IMAGE_HASH_H
#define IMAGE_HASH_H

#include <stdatomic.h>
#include <openssl/evp.h>
#include <stddef.h>

struct image_hash {
	EVP_MD_CTX *context;
};

int image_hash_begin(struct image_hash *hash); /* 0, or -1: no memory */
void image_hash_add(struct image_hash *hash, const void *data, size_t length);

/* As if `length` zero bytes had been added: seconds for some GiB. 0; -1: `stopped` meanwhile. */
int image_hash_add_zeros(struct image_hash *hash, unsigned long long length, const atomic_bool *stopped);

/* Writes 32 bytes and frees what begin made. */
void image_hash_end(struct image_hash *hash, unsigned char digest[32]);
void image_hash_drop(struct image_hash *hash);

/* Writes 64 digits and a zero byte. */
void image_hash_digits(const unsigned char digest[32], char text[65]);

#endif
