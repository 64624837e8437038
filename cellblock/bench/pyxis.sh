#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In the jail on the login node, as the benchmark's user: ROUNDS REFERENCE. Prints
# KIND MICROSECONDS, a line a step; all steps are in one allocation on one worker, and each round has one of each kind, in
# any order.
set -eu
rounds=$1 reference=$2 image=$HOME/big.sqsh
kinds=(bare existing sqsh registry_cached bare16 tasks16)
enroot import --output "$image" "docker://$reference" 2> /tmp/said || { cat /tmp/said; exit 1; }
srun -n1 --container-image="$image" --container-name=bench true
srun -n1 --container-image="$reference" true

step() {
    case $1 in
        bare) srun -n1 true ;;
        existing) srun -n1 --container-name=bench true ;;
        sqsh) srun -n1 --container-image="$image" true ;;
        registry_cached) srun -n1 --container-image="$reference" true ;;
        bare16) srun -n16 --overcommit true ;;
        tasks16) srun -n16 --overcommit --container-image="$image" true ;;
    esac
}

for (( i = -1; i < rounds; i++ )); do
    for kind in $(printf '%s\n' "${kinds[@]}" | shuf); do
        begun=${EPOCHREALTIME//[.,]/}
        step "$kind" > /dev/null 2> /tmp/said || { cat /tmp/said; exit 1; }
        ended=${EPOCHREALTIME//[.,]/}
        # The first round brings programs into memory.
        [ $i -lt 0 ] || echo "$kind $(( ended - begun ))"
    done
done
