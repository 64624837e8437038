#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: pyxis_peers.sh ROUNDS < lines KIND COMMAND - in an allocation: each round has one command of each kind, in any order.
# Prints KIND MICROSECONDS for each.
set -eu
rounds=$1
declare -A commands
while read -r kind command; do commands[$kind]=$command; done
said=$(mktemp)
for (( i = -1; i < rounds; i++ )); do
    for kind in $(printf '%s\n' "${!commands[@]}" | shuf); do
        begun=${EPOCHREALTIME//[.,]/}
        eval "${commands[$kind]}" > /dev/null 2> "$said" < /dev/null || { echo "$kind failed: $(tail -n 5 "$said")" >&2; exit 1; }
        ended=${EPOCHREALTIME//[.,]/}
        # The first round brings programs into memory.
        [ $i -lt 0 ] || echo "$kind $(( ended - begun ))"
    done
done
