/* SPDX-License-Identifier: Apache-2.0 */
/* Macros for descriptors, memory and mutexes that are released at the end of the block that declares them. */
#ifndef IMAGE_SCOPED_H
#define IMAGE_SCOPED_H

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

/* Keeps errno: it runs between the failing call and whoever reads the error. */
static inline void image_close(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	errno = saved;
}

static inline void image_free(void *pointer)
{
	free(*(void **)pointer);
}

static inline void image_unlock(pthread_mutex_t **mutex)
{
	pthread_mutex_unlock(*mutex);
}

static inline pthread_mutex_t *image_lock(pthread_mutex_t *mutex)
{
	pthread_mutex_lock(mutex);
	return mutex;
}

#define scoped_fd __attribute__((cleanup(image_close))) int
#define scoped_free __attribute__((cleanup(image_free)))
#define scoped_lock(mutex) \
	__attribute__((cleanup(image_unlock), unused)) pthread_mutex_t *scoped_lock_held = image_lock(mutex)

#endif
