# SPDX-License-Identifier: Apache-2.0
# Shell functions of cellblock-init: auth/slurm says to Slurm who asks (CELLBLOCK_AUTH=slurm). Daemons sign by the key
# themselves. Commands and slurmstepd ask a socket: sackd's, or that of slurmd, slurmctld and slurmdbd.
# docs/decisions/cluster-auth-slurm.md says who has the key. Needs waiting.sh and node.sh.
# shellcheck shell=sh

# shellcheck disable=SC2034 # node.sh uses it
KEY_OF_CLUSTER=slurm.jwks
# Of sackd, and of who starts it: a tmpfs in a namespace of theirs.
KEYS=/run/sack-keys
# Mounted at /run/slurm in the jail.
SACK_FOR_JAIL=/run/slurm-for-jail
SACK_SOCKET=/run/slurm/sack.socket
# Root's alone: where the keeper of the key is, and by what path slurmd reads the key.
KEEPER=/run/cellblock/key-keeper.pid
KEY_OF_SLURMD=/run/cellblock/slurm.jwks

# take_key FOLDER - the cluster's key, SlurmUser's alone, to FOLDER; whoever reads it has the old one or the new one.
take_key() {
    install -o slurm -g slurm -m 0400 "$SECRETS/slurm.jwks" "$1/slurm.jwks.new" && mv "$1/slurm.jwks.new" "$1/slurm.jwks"
}

wait_for_key() { wait_for "the key of auth/slurm, $SECRETS/slurm.jwks" [ -s "$SECRETS/slurm.jwks" ]; }

# sack_says SOCKET UID - whether the daemon at SOCKET answers, and takes root for UID.
sack_says() { /usr/lib/cellblock/sack-ask "$1" 2>/dev/null | grep -q "^uid=$2 "; }

# start_auth_of_node ROLE - the keeper of the key, with sackd for the jail, and on the login node for the node itself. A
# worker's slurmd serves the node.
start_auth_of_node() {
    wait_for_key
    install -d -m 0700 /run/cellblock
    # Root's on a worker: nobody who is slurm inside, and got out, puts a socket there.
    install -d -m 0755 /run/slurm
    [ "$1" = worker ] || chown slurm:slurm /run/slurm
    install -d -o slurm -g slurm -m 0755 $SACK_FOR_JAIL
    # Of a run before this one.
    rm -f $SACK_SOCKET $SACK_FOR_JAIL/sack.socket $KEEPER $KEY_OF_SLURMD
    vital "the keeper of Slurm's key" unshare --mount --propagation private /usr/lib/cellblock/key-keeper "$1" &
    wait_for "the keeper of Slurm's key" [ -s $KEEPER ]
    if [ "${CELLBLOCK_JAIL_ROOT:-nobody}" != operator ]; then
        wait_for "the jail's sackd to answer" sack_says $SACK_FOR_JAIL/sack.socket "$(cat /proc/sys/kernel/overflowuid)"
        read_only $SACK_FOR_JAIL
    fi
    if [ "$1" = login ]; then
        wait_for "sackd to answer" sack_says $SACK_SOCKET 0
        read_only /run/slurm
    fi
    export SLURM_SACK_JWKS=$KEY_OF_SLURMD
}

# join_auth ROLE - the same for a daemon that runs as Slurm's user from the start: it needs nobody beside it.
join_auth() { start_auth "$1"; }

# start_auth ROLE - where there is no jail, and nobody but the administrator.
start_auth() {
    wait_for_key
    case $1 in
    controller) folder=/run/slurmctld mode=0755 ;;
    accounting) folder=/run/slurmdbd mode=0700 ;;
    *)
        folder=$KEYS mode=0700
        install -d -o slurm -g slurm -m 0755 /run/slurm
        ;;
    esac
    own_folder "$mode" "$folder"
    take_key "$folder"
    export SLURM_SACK_JWKS="$folder/slurm.jwks"
    case $1 in
    controller | accounting) ;;
    *)
        vital sackd node-supervise setpriv --reuid=slurm --regid=slurm --clear-groups --inh-caps=-all \
            /usr/sbin/sackd -D -f /etc/slurm/slurm.conf &
        wait_for "sackd to answer" sack_says $SACK_SOCKET 0
        ;;
    esac
}
