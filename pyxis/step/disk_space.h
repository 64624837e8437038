/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises a full disk in what a program printed, and says what the user can do. */
#ifndef PYXIS_DISK_SPACE_H
#define PYXIS_DISK_SPACE_H

/* What to do, with what is free below `folder` and what is needed: `needed` bytes (0: what `said` says of an import, where
 * it does). `said` is the program's log. A new string; NULL: that was not the reason. */
char *pyxis_disk_space_advice(const char *said, const char *folder, unsigned long long needed);

#endif
