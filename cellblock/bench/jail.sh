#!/bin/bash
# Runs on a worker, outside the jail, in an allocation. Prints KIND NAME NUMBER, a line a run:
#   step NAME MICROSECONDS     srun true
#   tasks NAME MICROSECONDS    srun --ntasks=$TASKS true
#   memory NAME KIB            proportional set size a task, of a step with $MEMORY_TASKS tasks
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
    sed "s|plan=[^ ]*|plan=$kept/jail.fstab|; s|level=[^ ]*|level=$level|" "$kept/original" > "$kept/$level"
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

run() {
    use "$2"
    local kind=$1 name=$2
    shift 2
    local t0=$EPOCHREALTIME
    srun --immediate=60 "$@" true < /dev/null
    local t1=$EPOCHREALTIME
    echo "$kind $name $(( ${t1/./} - ${t0/./} ))"
}

rounds() {
    local count=$1 kind=$2
    shift 2
    for (( i = 0; i < count; i++ )); do
        for (( j = 0; j < ${#names[@]}; j++ )); do
            run "$kind" "${names[(i + j) % ${#names[@]}]}" "$@"
        done
    done
}

pss() {
    awk '/^Pss:/ { print $2 }' "/proc/$1/smaps_rollup"
    local child
    for child in $(pgrep -P "$1"); do
        pss "$child"
    done
}

rounds "$ROUNDS" step
rounds "$TASK_ROUNDS" tasks --ntasks="$TASKS" --overcommit
for name in "${names[@]}"; do
    use "$name"
    srun --ntasks="$MEMORY_TASKS" --overcommit sleep 60 &
    client=$!
    sleep 3
    stepd=$(pgrep -f "^slurmstepd: \[$SLURM_JOB_ID\.[0-9]*\]")
    echo "memory $name $(( $(pss "$stepd" | paste -sd+) ))" | awk -v n="$MEMORY_TASKS" '{ printf "%s %s %d\n", $1, $2, $3 / n }'
    kill "$client"
    wait "$client" || true
done
