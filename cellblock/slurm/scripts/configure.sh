#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Unpacks and configures Slurm in a toolchain root: configure.sh ARGUMENT...
# /in/slurm.tar is the tarball; config.h and config.status are copied to /out for Cellblock to look at.
set -eu

mkdir -p /build/slurm
cd /build/slurm
tar --strip-components=1 --no-same-owner -xf /in/slurm.tar

lib=/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
# Plugins have symbols of the program that loads them: they cannot all be bound at once.
export DEB_BUILD_MAINT_OPTIONS=hardening=+all,-bindnow
# Nothing of it is kept that a debugger could use.
export DEB_CFLAGS_APPEND="-g0 ${SLURM_CFLAGS:-}"
eval "$(dpkg-buildflags --export=sh)"
if ! ./configure --quiet --prefix=/usr --sysconfdir=/etc/slurm --localstatedir=/var --runstatedir=/run \
  --libdir="$lib" --with-pam_dir="$lib/security" --enable-pam --enable-cgroupv2 \
  --disable-static --disable-dependency-tracking --disable-debug --disable-sview \
  --without-freeipmi --without-rdkafka --without-hdf5 "$@" 2> /build/complaints; then
  cat /build/complaints >&2
  exit 1
fi
cat /build/complaints
cp config.h config.status /out/
