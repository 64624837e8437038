/* SPDX-License-Identifier: Apache-2.0 */
/* The version that `enroot version` prints, and the version of NVIDIA's enroot whose command line this one has. */
#ifndef ENROOT_VERSION_H
#define ENROOT_VERSION_H

#define ENROOT_VERSION "0.1.0"
/* The version whose command line, configuration and images this one has. */
#define ENROOT_COMPATIBLE "4.1.2"

#endif
