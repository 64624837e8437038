/* SPDX-License-Identifier: Apache-2.0 */
/* The error of the comparison of a tree with its manifest: what went wrong, in words, and its errno. */
#ifndef VOLUME_ERROR_H
#define VOLUME_ERROR_H

struct volume_error {
	char message[256];
	int number; /* errno, or 0 */
};

#endif
