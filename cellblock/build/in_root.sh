#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs a program inside a root filesystem made of layers, in namespaces of its own: what it mounts and starts
# is gone when it ends, however it ends. Called by cellblock/build/working_root.py under
#   unshare --mount --pid --ipc --uts --fork --kill-child
#
# in_root.sh LOWER UPPER WORK ROOT TMP [SOURCE:TARGET:(ro|rw) ...] -- PROGRAM [ARGUMENT ...]
#
# LOWER: folders of layers, the topmost first, separated by colons, relative to the folder `layers` beside ROOT: mount(8)
# of util-linux 2.39 and later takes 255 characters.
# TMP: a folder that is the root's /tmp from one program to the next, and no part of the layer.
set -eu
lower=$1 upper=$2 work=$3 root=$4 tmp=$5
shift 5

# What it makes has the modes that it asks for, whatever the person's umask is.
umask 022
cd "${root%/root}/layers"
# volatile: nothing is synced, for a crash throws the root away. metacopy and redirect_dir off: UPPER holds
# whole files under their own names, and so is a layer.
mount -t overlay overlay -o \
  "lowerdir=$lower,upperdir=$upper,workdir=$work,volatile,metacopy=off,redirect_dir=off,index=off" "$root"
cd /
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs "$root/sys"
mount --bind "$tmp" "$root/tmp"
mount -t tmpfs -o mode=755,nosuid tmpfs "$root/dev"
for device in null zero full random urandom tty; do
  # Bound, not made: it works where mknod(2) is forbidden.
  : > "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s /proc/self/fd/0 "$root/dev/stdin"
ln -s /proc/self/fd/1 "$root/dev/stdout"
ln -s /proc/self/fd/2 "$root/dev/stderr"

while [ "$1" != -- ]; do
  IFS=: read -r source target mode <<< "$1"
  if [ -d "$source" ]; then
    mkdir -p "$root$target"
  elif [ ! -f "$root$target" ] || [ -L "$root$target" ]; then
    # Nothing to lie over; through a symbolic link it would be a file of this machine.
    shift
    continue
  fi
  mount --bind "$source" "$root$target"
  [ "$mode" = rw ] || mount -o remount,bind,ro "$root$target"
  shift
done
shift
hostname cellblock-build
exec chroot "$root" "$@"
