#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# torch.distributed in a Slurm step: rendezvous and ranks for images that have PyTorch. What is set already stays.
set -euo pipefail

grep -q '^PYTORCH_VERSION=' "$ENROOT_ENVIRON" && [[ -n ${SLURM_STEP_ID:-} ]] || exit 0

put() {
    grep -q "^$1=" "$ENROOT_ENVIRON" || [[ -z $2 ]] || echo "$1=$2" >>"$ENROOT_ENVIRON"
}

# "node[1-3,7]" or "a,b": the first of them.
first_node() {
    local list=${1%%,*}
    if [[ $list == *\[* ]]; then
        local numbers=${list#*\[}
        numbers=${numbers%%]*}
        list=${list%%\[*}${numbers%%-*}
    fi
    echo "$list"
}

# "2(x3),1" is 2 2 2 1: the tasks of this step on this node.
tasks_here() {
    local group node=${SLURM_NODEID:-0} groups
    IFS=, read -r -a groups <<<"${SLURM_STEP_TASKS_PER_NODE:-${SLURM_TASKS_PER_NODE:-1}}"
    for group in "${groups[@]}"; do
        local times=1
        if [[ $group == *"(x"* ]]; then
            times=${group#*(x}
            times=${times%)}
        fi
        if ((node < times)); then
            echo "${group%%(*}"
            return
        fi
        ((node -= times)) || true
    done
}

put MASTER_ADDR "$(first_node "${SLURM_STEP_NODELIST:-${SLURM_JOB_NODELIST:-}}")"
# The same on all nodes, another for each job that shares a node: above what daemons use, below ephemeral ports.
put MASTER_PORT "$((15000 + ${SLURM_JOB_ID:-0} % 15000))"
put WORLD_SIZE "${SLURM_NTASKS:-}"
put RANK "${SLURM_PROCID:-}"
put LOCAL_RANK "${SLURM_LOCALID:-}"

# Each of several processes would take all cores of the node, as torchrun warns. What the job says stays.
if [[ -z ${OMP_NUM_THREADS:-} && $(tasks_here) -gt 1 ]]; then
    put OMP_NUM_THREADS 1
fi
