# Shell functions of cellblock-init: a second munged, for the jail, that vouches for neither root nor SlurmUser.
# docs/decisions/jail-root-and-slurm.md says why and how.
# shellcheck shell=sh

# A copy that is executable and not readable, and of an owner whom the namespace does not have: the kernel then
# ties /proc/PID and ptrace to CAP_SYS_PTRACE on the node, which nobody in the jail has. Otherwise the owner of the
# namespace, and root inside is anyone, could look into the process and at its key.
MUNGED_FOR_JAIL=/usr/libexec/cellblock/munged-for-jail
# Mounted at /run/munge in the jail.
MUNGE_FOR_JAIL=/run/munge-for-jail

# uids_without UID... - lines of uid_map(5) that map every uid but these to itself.
uids_without() {
    next=0
    for uid in $(printf '%s\n' "$@" | sort -n -u); do
        [ "$uid" -le "$next" ] || echo "$next $next $((uid - next))"
        next=$((uid + 1))
    done
    # The last one, 4294967295, stands for "none".
    echo "$next $next $((4294967295 - next))"
}

# ids_unmapped PID - whether PID is in a user namespace that has no ids yet.
ids_unmapped() { [ -e "/proc/$1" ] && [ -z "$(cat "/proc/$1/uid_map")" ]; }

# munged_for_jail - serve MUNGE_FOR_JAIL until munged ends. SlurmUser is `slurm`; CELLBLOCK_NOT_VOUCHED lists more
# uids, of other administrators of Slurm.
munged_for_jail() {
    # shellcheck disable=SC2086 # a list
    uids=$(uids_without 0 "$(id -u slurm)" ${CELLBLOCK_NOT_VOUCHED:-}) || return 1
    install -d -o munge -g munge -m 0755 $MUNGE_FOR_JAIL || return 1
    # A socket of a run before this one would look like an answer.
    rm -f $MUNGE_FOR_JAIL/* $MUNGE_FOR_JAIL.go
    mkfifo -m 0600 $MUNGE_FOR_JAIL.go || return 1
    # It waits for its ids, and ends when none come. --force: it finds folders of root's on the way to its own, and
    # to it root is nobody.
    # shellcheck disable=SC2016 # for the inner shell
    unshare --user --keep-caps sh -euc '
        read -r go && [ "$go" = go ]
        exec setpriv --reuid=munge --regid=munge --clear-groups --inh-caps=-all --ambient-caps=-all \
            "$0" --foreground --force --socket="$1/munge.socket.2" --pid-file="$1/munged.pid" \
            --seed-file=/var/lib/munge/for-jail.seed' \
        $MUNGED_FOR_JAIL $MUNGE_FOR_JAIL <$MUNGE_FOR_JAIL.go &
    munged=$!
    exec 9>$MUNGE_FOR_JAIL.go
    rm $MUNGE_FOR_JAIL.go
    wait_for "a user namespace for the jail's munged; is user.max_user_namespaces 0?" ids_unmapped $munged
    { echo "$uids" >/proc/$munged/uid_map && echo "0 0 4294967295" >/proc/$munged/gid_map && echo go >&9; } ||
        return 1
    exec 9>&-
    wait $munged
}

# munge_for_jail_answers - whether it does, and takes root for nobody.
munge_for_jail_answers() {
    munge --no-input --socket=$MUNGE_FOR_JAIL/munge.socket.2 2>/dev/null | unmunge 2>/dev/null |
        grep -q "^UID:.*($(cat /proc/sys/kernel/overflowuid))\$"
}
