#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Slices of GPUs (MIG): the nodes of NVIDIA's capabilities where /dev is a small one (--ipc, ENROOT_RESTRICT_DEV), and
# the right to change or watch slices where NVIDIA_MIG_CONFIG_DEVICES or NVIDIA_MIG_MONITOR_DEVICES asks for it.
set -euo pipefail

grep -qE '^NVIDIA_VISIBLE_DEVICES=.+$' "$ENROOT_ENVIRON" || exit 0
[[ -d /dev/nvidia-caps ]] || exit 0
capabilities=/proc/driver/nvidia/capabilities

# "DeviceFileMinor: 1" names the node /dev/nvidia-caps/nvidia-cap1.
show() {
    local file minor
    for file in "$@"; do
        [[ -r $file ]] || continue
        minor=$(sed -n 's/^DeviceFileMinor: *//p' "$file")
        if [[ -n $minor && -e /dev/nvidia-caps/nvidia-cap$minor ]]; then
            echo "/dev/nvidia-caps/nvidia-cap$minor /dev/nvidia-caps/nvidia-cap$minor none x-create=file,bind,nosuid,noexec"
        fi
    done
}

{
    show "$capabilities"/gpu*/mig/gi*/access "$capabilities"/gpu*/mig/gi*/ci*/access
    grep -qE '^NVIDIA_MIG_CONFIG_DEVICES=.+$' "$ENROOT_ENVIRON" && show "$capabilities/mig/config"
    grep -qE '^NVIDIA_MIG_MONITOR_DEVICES=.+$' "$ENROOT_ENVIRON" && show "$capabilities/mig/monitor"
    true
} >>"$ENROOT_MOUNTS"
