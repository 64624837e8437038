#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs on a worker, outside the jail, in an allocation. Prints KIND NAME NUMBER, a line a run:
#   step NAME MICROSECONDS     srun true; without the plugin in the rounds of a level: without:LEVEL
#   tasks LEVEL MICROSECONDS   what all tasks of srun --ntasks=$TASKS true together spent on entering
#   memory NAME KIB            proportional set size a task, of a step with $TASKS tasks
# NAME is a level of the jail, or "without" the plugin.
set -eu
cd /var/spool/slurmd/conf-cache
kept=$(mktemp -d)
cp -p plugstack.conf "$kept/original"

use() {
    cp "$kept/$1" plugstack.conf.new
    mv plugstack.conf.new plugstack.conf
}
trap 'use original; rm -rf "$kept"' EXIT

read -ra levels <<< "${LEVELS:?}"

# The cluster's plan, made up to $MOUNTS lines that are applied.
plan=$(sed -n 's/^required .* plan=\([^ ]*\).*/\1/p' plugstack.conf)
grep -v -e '^#' -e '^$' "$plan" > "$kept/jail.fstab"
lines=$(wc -l < "$kept/jail.fstab")
[ "$lines" -le "$MOUNTS" ] || { echo "the plan $plan has $lines lines, more than $MOUNTS"; exit 1; }
for (( i = lines; i < MOUNTS; i++ )); do
    echo "/usr/share /run/bench/$i none bind,ro,x-create=dir" >> "$kept/jail.fstab"
done

: > "$kept/without"
for level in "${levels[@]}"; do
    # The jail alone.
    sed "/pyxis[.]so/d; s|plan=[^ ]*|plan=$kept/jail.fstab|; s|level=[^ ]*|level=$level|" "$kept/original" > "$kept/$level"
    grep -q "level=$level" "$kept/$level" || { echo "no level= in plugstack.conf"; exit 1; }
done
names=(without "${levels[@]}")

# Each must differ from none in what a task sees, or nothing is compared.
use without
outside=$(srun stat -c %d:%i /)
for level in "${levels[@]}"; do
    use "$level"
    inside=$(srun stat -c %d:%i /)
    [ "$inside" != "$outside" ] || { echo "a task's / is $outside at level $level and without"; exit 1; }
done

# A job has one level: what its first step makes for all, steps at another level would each make anew.
rounds() {
    local t0 t1
    for (( i = 0; i < ROUNDS; i++ )); do
        # In any order: what a step leaves to be cleared away costs the one after it.
        for name in $(printf '%s\n' "$1" without | shuf); do
            use "$name"
            t0=$EPOCHREALTIME
            # A step of its own kind of MPI sets up a server, 25 ms and their scatter, in which the jail's part drowns.
            # From a folder that the jail has, too: slurmstepd tells when it cannot enter the one it was started in.
            srun --mpi=none --chdir=/ --immediate=60 true < /dev/null
            t1=$EPOCHREALTIME
            [ "$name" != without ] || name=without:$1
            echo "step $name $(( ${t1/./} - ${t0/./} ))"
        done
    done
}

# The plugin says at level debug how long each task took.
entering() {
    local counted=0
    while (( counted < TASK_ROUNDS )); do
        use "$1"
        sum=$(srun --chdir=/ --slurmd-debug=debug --ntasks="$TASKS" --overcommit true 2>&1 < /dev/null |
            awk -v tasks="$TASKS" '/ task entered in [0-9]+ us$/ { n++; s += $(NF - 1) } END { if (n == tasks) print s }')
        # Lines of many tasks at once may run into each other: then the sum is not whole.
        [ -n "$sum" ] || continue
        echo "tasks $1 $sum"
        counted=$(( counted + 1 ))
    done
}

pss() {
    awk '/^Pss:/ { print $2 }' "/proc/$1/smaps_rollup"
    local child
    for child in $(pgrep -P "$1"); do
        pss "$child"
    done
}

for level in "${levels[@]}"; do
    rounds "$level"
    entering "$level"
done
for name in "${names[@]}"; do
    use "$name"
    srun --ntasks="$TASKS" --overcommit sleep 60 &
    client=$!
    sleep 5
    # The oldest: what it forks has its command line, too.
    stepd=$(pgrep -o -f "^slurmstepd: \[$SLURM_JOB_ID\.[0-9]*\]")
    echo "memory $name $(( $(pss "$stepd" | paste -sd+) ))" | awk -v n="$TASKS" '{ printf "%s %s %d\n", $1, $2, $3 / n }'
    kill "$client"
    wait "$client" || true
done
