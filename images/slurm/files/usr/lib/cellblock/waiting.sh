# SPDX-License-Identifier: Apache-2.0
# Shell functions of the entrypoints: bounded waits and checks, each with a message.
# shellcheck shell=sh

# Seconds that a part may take to appear before the container gives up.
wait_s=${CELLBLOCK_WAIT_S:-60}

# die MESSAGE... - say what is wrong and end the container.
die() {
    echo "cellblock-init: $*" >&2
    exit 1
}

# wait_for WHAT COMMAND... - until COMMAND succeeds; after wait_s seconds: "WHAT did not ...", and die.
wait_for() {
    what=$1
    shift
    # By the clock: a try can itself take seconds.
    deadline=$(($(date +%s) + wait_s))
    tries=0
    until "$@"; do
        [ "$(date +%s)" -lt "$deadline" ] || die "after $wait_s seconds, still waiting for $what"
        tries=$((tries + 1))
        # What is late is often never there, and others need the processor.
        if [ $tries -lt 30 ]; then sleep 0.1; else sleep 0.5; fi
    done
}

# listens HOST:PORT - whether something does there. (dash has no /dev/tcp; bash is essential.)
listens() {
    # shellcheck disable=SC2016 # for the inner shell
    timeout 2 bash -c ': < "/dev/tcp/$0/$1"' "${1%:*}" "${1##*:}" 2>/dev/null
}

# Whether something listens where a slurmctld should.
controller_listens() {
    for each in $(echo "$CONTROLLER" | tr , ' '); do
        ! listens "$each" || return 0
    done
    return 1
}

# two_controllers - whether there are two slurmctld, of which one acts.
two_controllers() { case $CONTROLLER in *,*) return 0 ;; *) return 1 ;; esac; }

# own_folder MODE FOLDER... - make the folders, Slurm's user's own. As that user, without root, they are made, or were mounted
# as the user's.
own_folder() {
    mode=$1
    shift
    if [ "$(id -u)" = 0 ]; then
        install -d -o slurm -g slurm -m "$mode" "$@"
        return
    fi
    for folder; do
        if [ -d "$folder" ]; then
            [ -w "$folder" ] || die "$folder cannot be written by user $(id -un), and must: give the volume to that user"
        else
            mkdir -m "$mode" "$folder"
        fi
    done
}

# copy_jwt_key FOLDER - with CELLBLOCK_TOKENS, a copy of the key of tokens there that is SlurmUser's alone: Slurm takes no
# other.
copy_jwt_key() {
    rm -f "$1/jwt_hs256.key"
    [ -n "${CELLBLOCK_TOKENS:-}" ] || return 0
    wait_for "the key of tokens, $SECRETS/jwt_hs256.key" [ -s "$SECRETS/jwt_hs256.key" ]
    install -o slurm -g slurm -m 0400 "$SECRETS/jwt_hs256.key" "$1/"
}

# wait_for_jail - until the volume's tree is there, and with CELLBLOCK_JAIL_READY until `jail init` has said that it
# is done with it: `any` for whatever image, else a part of the line that it writes (the image's id or reference).
wait_for_jail() {
    wait_for "the jail, mounted at $JAIL" [ -e "$JAIL/etc/passwd" ]
    [ -z "${CELLBLOCK_JAIL_READY:-}" ] ||
        wait_for "$READY to say that the jail is ready: $CELLBLOCK_JAIL_READY; look at the Job that fills it" jail_is_ready
}

jail_is_ready() {
    case $CELLBLOCK_JAIL_READY in
        any) [ -s "$READY" ] ;;
        *) grep -q -s -F -e "$CELLBLOCK_JAIL_READY" "$READY" ;;
    esac
}

# check_jail_release - die when the jail's client commands are of another release than this image's.
check_jail_release() {
    mine=$(cat "$RELEASE_FILE")
    file=$JAIL/etc/cellblock/jail-release
    # Users write the jail: read the file as data, never source it.
    # They can also make a fifo of it, which nobody writes to.
    theirs=
    [ ! -f "$file" ] || theirs=$(timeout 5 sed -n 's/^SLURM_RELEASE=\([0-9.]*\)$/\1/p' "$file" 2>/dev/null | head -n 1)
    [ "$mine" = "$theirs" ] ||
        die "the jail is of Slurm ${theirs:-(no release in $file)}, this image of $mine;" \
            "assemble the jail from the jail image of this variant"
}

# refuse_release RELEASE WHAT - die when WHAT was written by a Slurm RELEASE that this image's Slurm does not read: a
# newer one, or one from too long ago. Before anything is touched.
refuse_release() {
    mine=$(cat "$RELEASE_FILE")
    [ "$1" != "$mine" ] || return 0
    ! grep -qxF -e "$1" "$READS_FILE" || return 0
    die "$2 was written by Slurm $1, which this image's Slurm $mine does not read (it reads $(xargs <"$READS_FILE"));" \
        "nothing was touched: start images of Slurm $1 again; docs/cluster-upgrade.md has the way up and the way back"
}

# Where slurmctld answers, HOST:PORT; of two controllers, both, with a comma between them.
CONTROLLER=${CELLBLOCK_CONTROLLER:-controller:6817}
# The tree that jobs and sessions see as /.
JAIL=/mnt/jail/root
# Written by `jail init` when it is done. Beside the tree, so that users cannot write it.
READY=${JAIL%/*}/ready
# Slurm's major.minor in this image.
RELEASE_FILE=/usr/lib/cellblock/slurm-release
# The releases before it whose state and database it reads, one a line.
READS_FILE=/usr/lib/cellblock/slurm-reads
# Secrets of the cluster: munge.key or slurm.jwks, ssh_host_*_key, authorized_keys. A mount, which goes once they are taken.
# shellcheck disable=SC2034 # used by those who source this file
SECRETS=/run/secrets/cellblock
# Where sshd asks for signatures with the host keys.
# shellcheck disable=SC2034 # as above
HOST_KEY_AGENT=/run/sshd/host-keys.agent
