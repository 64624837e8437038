# SPDX-License-Identifier: Apache-2.0
# Shell functions of cellblock-init: a daemon that vouches for the jail's users alone, not for root nor system users. It is
# the one that tells Slurm who asks from inside the jail: munged, or with auth/slurm sackd. Needs waiting.sh.
# docs/decisions/jail-root-and-slurm.md says why and how.
# shellcheck shell=sh

# Ids that it vouches for as nobody's: root and system users, slurm, munge and nobody among them (Debian's policy, 9.2.2).
# SlurmUser and CELLBLOCK_NOT_VOUCHED, a list of N or FIRST-LAST, come on top.
SYSTEM_UIDS="0-999 60001-65535"
# The same for groups, which slurmd takes on for a job as well. 100 (users) is some users' own.
SYSTEM_GIDS="0-99 101-999 60001-65535"

# ids_without RANGE... - lines of uid_map(5) that map every id to itself but those in a RANGE, N or FIRST-LAST.
ids_without() {
    printf '%s\n' "$@" | sed 's/^[0-9]*$/&-&/' | sort -n | {
        next=0
        while IFS=- read -r first last; do
            [ "$first" -le "$next" ] || echo "$next $next $((first - next))"
            [ "$last" -lt "$next" ] || next=$((last + 1))
        done
        # The last one, 4294967295, stands for "none".
        echo "$next $next $((4294967295 - next))"
    }
}

# uids_vouched_for - the uid_map of its namespace.
uids_vouched_for() {
    for range in ${CELLBLOCK_NOT_VOUCHED:-}; do
        echo "$range" | grep -q -x -E '[0-9]{1,9}(-[0-9]{1,9})?' ||
            die "CELLBLOCK_NOT_VOUCHED: '$range' is neither a uid nor a range FIRST-LAST of uids"
    done
    # shellcheck disable=SC2086 # lists
    map=$(ids_without $SYSTEM_UIDS "$(id -u slurm)" ${CELLBLOCK_NOT_VOUCHED:-}) || return 1
    # What the kernel takes at most, in one write(2): user_namespaces(7).
    { [ "$(echo "$map" | wc -l)" -le 340 ] && [ ${#map} -lt 4095 ]; } ||
        die "CELLBLOCK_NOT_VOUCHED lists too many separate uids for a uid_map (340 lines, 4095 bytes);" \
            "list neighbours as ranges, FIRST-LAST"
    echo "$map"
}

# gids_vouched_for - the gid_map of its namespace.
gids_vouched_for() {
    # shellcheck disable=SC2086 # a list
    ids_without $SYSTEM_GIDS "$(id -g slurm)"
}

# ids_unmapped PID - whether PID is in a user namespace that has no ids yet.
ids_unmapped() { [ -e "/proc/$1" ] && [ -z "$(cat "/proc/$1/uid_map")" ]; }

# ids_unmapped_or_ended PID - the same, or PID, a child of this shell's, has ended.
ids_unmapped_or_ended() { ids_unmapped "$1" || ! grep -q '^State:[[:space:]]*[^ZX]' "/proc/$1/status" 2>/dev/null; }

# run_for_jail USER PLACE COMMAND... - COMMAND as USER, in a user namespace that has the ids of users alone, until it ends.
# PLACE.pid has its number. COMMAND is a file that can be executed and not read, of an owner whom the namespace does not
# have: the kernel then ties /proc/PID and ptrace to CAP_SYS_PTRACE on the node, which nobody in the jail has. Otherwise
# the owner of the namespace, and root inside is anyone, could look into the process and at its key.
run_for_jail() {
    user=$1
    place=$2
    shift 2
    uids=$(uids_vouched_for) || exit 1
    gids=$(gids_vouched_for)
    rm -f "$place.go"
    mkfifo -m 0600 "$place.go" || return 1
    # It becomes USER first, for in its namespace USER has no uid: files of USER's, and root's, are nobody's there as
    # it is itself, and it takes them for its own. sys_admin: the namespace is made where users may make none, too; the
    # shell in it has no capability any more. It waits for its ids, and ends when none come.
    # shellcheck disable=SC2016 # for the inner shell
    setpriv --reuid="$user" --regid="$user" --clear-groups --inh-caps=+sys_admin --ambient-caps=+sys_admin \
        unshare --user sh -euc 'read -r go && [ "$go" = go ] && exec "$@"' sh "$@" <"$place.go" &
    child=$!
    exec 9>"$place.go"
    rm "$place.go"
    wait_for "a user namespace for the jail" ids_unmapped_or_ended $child
    ids_unmapped $child || {
        exec 9>&-
        echo "cellblock-init: there is no user namespace for the jail; is user.max_user_namespaces 0, or too small?" >&2
        return 1
    }
    { echo "$uids" >/proc/$child/uid_map && echo "$gids" >/proc/$child/gid_map && echo go >&9; } || return 1
    exec 9>&-
    echo $child >"$place.pid"
    wait $child
}

# supervise_for_jail WHAT FUNCTION - start it again when a signal ends it; node-supervise cannot, for it gives it no ids.
# What could be started before is also tried again when it fails: root inside, who may be any uid, can use up its user
# namespaces for a while. What never could be, for a wrong setting as an example, is not.
supervise_for_jail() {
    begun=
    while :; do
        status=0
        # In a shell of its own, which may end.
        ("$2") || status=$?
        [ $status -le 128 ] || begun=yes
        { [ $status -ne 0 ] && [ -n "$begun" ]; } || return 0
        echo "cellblock-init: $1 ended with status $status; it is started again" >&2
        if [ $status -gt 128 ]; then sleep 0.2; else sleep 1; fi
    done
}
