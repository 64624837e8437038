# SPDX-License-Identifier: Apache-2.0
# What register-node, node-leave and requeue-lost-jobs share. Needs waiting.sh, and `node`, the node's name.
# shellcheck shell=sh

# Begins the reason of a drain that is ours: a node that is back serves again. One of an administrator's stays.
# shellcheck disable=SC2034 # used by those who source this file
LEAVES="[cellblock:leave]"
# Root's alone, outside the jail: that this node's slurmd has registered. A probe of the pod's looks for it.
# shellcheck disable=SC2034 # as above
REGISTERED=/run/cellblock/registered

# What this node was called when it started. Root in a job may have rights to give the host another name.
# shellcheck disable=SC2034 # as above
NODE_NAME=/run/cellblock/node-name

# field NAME - of the node's record in $record, such as State; a reason to its end.
field() { printf '%s\n' "$record" | sed -n "s/^.*[[:space:]]$1=//p" | head -n 1 | cut -d ' ' -f 1; }

# reason - of the record, without who gave it, and when.
reason() { printf '%s\n' "$record" | sed -n 's/^ *Reason=//p' | head -n 1 | sed 's/ \[[^][]*@[^][]*\]$//'; }

# look - $record is the node's record, or nothing when slurmctld knows no such node. Fails when it does not answer. One node's
# record costs slurmctld nothing.
look() {
    # shellcheck disable=SC2154 # those who source this file set it
    record=$(SLURM_TIME_FORMAT=%s timeout 20 scontrol show node "$node" 2>&1) && return
    case $record in *"not found"*) record='' ;; *) return 1 ;; esac
}
