/* SPDX-License-Identifier: Apache-2.0 */
/* Explains why a task's program will not run in its container, before Slurm says only "execve(): No
 * such file or directory". */
#ifndef PYXIS_PROGRAM_FAULT_H
#define PYXIS_PROGRAM_FAULT_H

/* `word` is the first of a task's command line, `path` the task's PATH (may be NULL). In the container, where the task will be.
 * Returns what is wrong and, in a second line, what to do: a new string; NULL: nothing is known against it. */
char *pyxis_program_fault(const char *word, const char *path);

#endif
