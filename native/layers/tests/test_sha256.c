/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that many SHA-256 digests computed at once are those computed one by one, at all lengths
 * around a block's end. */
#include <openssl/evp.h>
#include <stdlib.h>

#include "native/layers/sha256_many.h"
#include "native/testing/check.h"

#define COUNT 300

static void test_lanes(int wide)
{
	static unsigned char data[COUNT * 500], digests[COUNT][32];
	struct sha256_one all[COUNT];
	unsigned char expected[32];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char)(i * 2654435761u >> 13);
	for (int n = 0; n <= COUNT; n += n < 20 ? 1 : 35) {
		memset(digests, 0, sizeof(digests));
		for (int i = 0; i < n; i++)
			/* The last is by far the longest: it ends alone. */
			all[i] = (struct sha256_one){ data + i, i + 1 == n ? 100001 : (size_t)i, digests[i] };
		image_sha256_lanes(all, (size_t)n, wide);
		for (int i = 0; i < n; i++) {
			EVP_Digest(data + i, i + 1 == n ? 100001 : (size_t)i, expected, NULL, EVP_sha256(), NULL);
			CHECK(!memcmp(expected, digests[i], 32));
		}
	}
}

int main(void)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2"))
		test_lanes(0);
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512vl"))
		test_lanes(1);
#else
	test_lanes(0);
	test_lanes(1);
#endif
	return check_result("sha256");
}
