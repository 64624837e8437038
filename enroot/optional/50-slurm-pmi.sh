#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# MPI over PMI: a container gets the step's variables and the directory of PMIx's server.
# Variables of a single task stay with it: whoever joins the container later brings its own.
set -euo pipefail

compgen -e | while read -r name; do
    case $name in
    PMI_FD) ;; # a descriptor, which does not come along
    SLURM_* | PMIX_* | PMI_*)
        # A file of lines has no room for a value of several.
        case ${!name} in
        *$'\n'*) ;;
        *) printf '%s=%s\n' "$name" "${!name}" ;;
        esac
        ;;
    esac
done >>"$ENROOT_ENVIRON"

# What the server offers, as parameters of MCA: a PMIx that was not told picks its own, and the two may not agree.
offer() {
    if [[ -n $2 && -z ${!1:-} ]] && ! grep -q "^$1=" "$ENROOT_ENVIRON"; then
        echo "$1=$2" >>"$ENROOT_ENVIRON"
    fi
}
offer PMIX_MCA_psec "${PMIX_SECURITY_MODE:-}"
offer PMIX_MCA_gds "${PMIX_GDS_MODULE:-${PMIX_GDS_MODE:-}}"
offer PMIX_MCA_ptl "${PMIX_PTL_MODULE:-${PMIX_PTL_MODE:-}}"

for directory in "${PMIX_SERVER_TMPDIR:-}" "${SLURM_PMIXP_TMPDIR:-}"; do
    if [[ -d $directory && $directory != *[[:space:]]* ]]; then
        echo "$directory $directory none x-create=dir,bind,rw,nosuid,noexec,nodev,private" >>"$ENROOT_MOUNTS"
    fi
done
