#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Reductions in the switches (SHARP): settings of the job, and the socket of the daemon of this node.
set -euo pipefail

# Without an adapter in the container there is nothing to reduce over.
grep -qE '^MELLANOX_VISIBLE_DEVICES=.+$' "$ENROOT_ENVIRON" || exit 0
if grep -qE '^MELLANOX_VISIBLE_DEVICES=void$' "$ENROOT_ENVIRON"; then exit 0; fi

compgen -e | while read -r name; do
    case $name in
    SHARP_* | HCOLL_*)
        case ${!name} in
        *$'\n'*) ;;
        *) printf '%s=%s\n' "$name" "${!name}" ;;
        esac
        ;;
    esac
done >>"$ENROOT_ENVIRON"

for directory in /var/run/sharp /run/sharp_am; do
    if [[ -d $directory ]]; then
        echo "$directory $directory none x-create=dir,bind,rw,nosuid,noexec,nodev" >>"$ENROOT_MOUNTS"
    fi
done
