/* SPDX-License-Identifier: Apache-2.0 */
/* The error of native/tree_check: a text, and errno. */
#ifndef VOLUME_ERROR_H
#define VOLUME_ERROR_H

struct volume_error {
	char message[256];
	int number; /* errno, or 0 */
};

#endif
