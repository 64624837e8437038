# SPDX-License-Identifier: Apache-2.0
# The folder by which this container and the one that makes pods of nodes on demand speak to each other; node_requests.py in
# images/node-pods says what is in it. All in it is replaced by rename.
# shellcheck shell=sh

REQUESTS=${CELLBLOCK_NODE_PODS:-/run/node-pods}
# Begins the reason of a node that is down because it could not be had, or was lost: it is tried again by itself.
# shellcheck disable=SC2034 # used by those who source this file
OURS="[cellblock:pod]"

# request NODE - $state and $token are what is wanted of NODE; both are empty when nothing is.
request() {
    state='' token=''
    # shellcheck disable=SC2034 # used by those who source this file
    read -r state token 2>/dev/null <"$REQUESTS/wanted/$1" || true
}

# want STATE NODE [TOKEN] - `up` and `down` are new requests. The node of one that is fulfilled `serves`, under the request's token.
want() {
    mkdir -p "$REQUESTS/wanted"
    set -- "$1" "$2" "${3:-$(cat /proc/sys/kernel/random/uuid)}"
    echo "$1 $3" >"$REQUESTS/wanted/.$2.$$"
    mv -f "$REQUESTS/wanted/.$2.$$" "$REQUESTS/wanted/$2"
}

# count_failure NODE - of its set, until one of its nodes serves.
count_failure() {
    mkdir -p "$REQUESTS/failures"
    counted=0
    read -r counted 2>/dev/null <"$REQUESTS/failures/${1%-*}" || true
    echo $((counted + 1)) >"$REQUESTS/failures/${1%-*}"
}
