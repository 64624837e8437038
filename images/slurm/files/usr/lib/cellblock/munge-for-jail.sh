# SPDX-License-Identifier: Apache-2.0
# Shell functions of cellblock-init: a second munged, for the jail, that vouches for users alone: not for root, nor system users.
# docs/decisions/jail-root-and-slurm.md says why and how.
# shellcheck shell=sh
# shellcheck source=images/slurm/files/usr/lib/cellblock/ids-for-jail.sh
. /usr/lib/cellblock/ids-for-jail.sh

# Executable and not readable; run_for_jail says why.
MUNGED_FOR_JAIL=/usr/libexec/cellblock/munged-for-jail
# Mounted at /run/munge in the jail.
MUNGE_FOR_JAIL=/run/munge-for-jail

# Seconds that a credential is good for, at most: munge's default. Whoever decodes one has munged remember it so long, some 50
# bytes, and anybody may make as many as he can of an hour's.
MUNGE_LIFE_S=300

# How many connections a node's munged keeps open: more end those of the user who has most. Each finds a thread, and some are left for
# those that are being ended. With two, munge's default, others' requests fail while a user has fifty open and says nothing: each
# takes a thread for two seconds.
MUNGE_CONNECTIONS=24
MUNGE_THREADS=32
GUARD=/usr/lib/cellblock/service_guard.so

# munged_for_jail - serve MUNGE_FOR_JAIL until munged ends.
munged_for_jail() {
    install -d -o munge -g munge -m 0755 $MUNGE_FOR_JAIL || return 1
    # A socket of a run before this one would look like an answer.
    rm -f $MUNGE_FOR_JAIL/*
    run_for_jail munge $MUNGE_FOR_JAIL env LD_PRELOAD=$GUARD SERVICE_GUARD_CONNECTIONS=$MUNGE_CONNECTIONS \
        $MUNGED_FOR_JAIL --foreground --num-threads=$MUNGE_THREADS --socket=$MUNGE_FOR_JAIL/munge.socket.2 \
        --pid-file=$MUNGE_FOR_JAIL/munged.pid --seed-file=/var/lib/munge/for-jail.seed --max-ttl=$MUNGE_LIFE_S
}

supervise_munged_for_jail() { supervise_for_jail "the jail's munged" munged_for_jail; }

# munge_for_jail_answers - whether it does, and takes root for nobody.
munge_for_jail_answers() {
    munge --no-input --socket=$MUNGE_FOR_JAIL/munge.socket.2 2>/dev/null | unmunge 2>/dev/null |
        grep -q "^UID:.*($(cat /proc/sys/kernel/overflowuid))\$"
}
