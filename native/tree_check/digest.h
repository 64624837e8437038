/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the SHA-256 of a file with OpenSSL's libcrypto, which uses the processor's instructions for it. */
#ifndef VOLUME_DIGEST_H
#define VOLUME_DIGEST_H

#include <stdint.h>

#include "error.h"

struct volume_digest;

/* NULL with `err` where there is no libcrypto. */
struct volume_digest *volume_digest_new(struct volume_error *err);
void volume_digest_free(struct volume_digest *digest);

/* Reads `fd` to its end; `bytes` grows by what was read. Writes 64 hexadecimal digits and a NUL.
 * Returns 0, or an errno: EFBIG when there are more than `most` bytes. */
int volume_digest_file(struct volume_digest *digest, int fd, uint64_t most, char hex[65], uint64_t *bytes);

#endif
