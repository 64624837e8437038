/* A bundle: this very program with an image behind it. It runs the image from where it lies; nothing is extracted. */
#ifndef ENROOT_BUNDLE_H
#define ENROOT_BUNDLE_H

#include <stdbool.h>

/* Whether this program is a bundle; then it has run as one, and `status` is its exit status. */
bool bundle_is_one(int *status, int argc, char **argv);

#endif
