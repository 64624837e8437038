# SPDX-License-Identifier: Apache-2.0
# Shell functions of cellblock-init: munge says to Slurm who asks. Needs waiting.sh and node.sh.
# shellcheck shell=sh
# shellcheck source=images/slurm/files/usr/lib/cellblock/munge-for-jail.sh
. /usr/lib/cellblock/munge-for-jail.sh

# shellcheck disable=SC2034 # node.sh uses it
KEY_OF_CLUSTER=munge.key

munge_answers() { munge --no-input 2>/dev/null | unmunge >/dev/null 2>&1; }

prepare_munge() {
    wait_for "the munge key, $SECRETS/munge.key" [ -s "$SECRETS/munge.key" ]
    # Readable by all: clients in the jail reach the socket through it.
    install -d -o munge -g munge -m 0755 /run/munge
    # A socket of a run before this one would look like an answer.
    rm -f /run/munge/munge.socket.2 /run/munge/munge.socket.2.lock
}

# start_auth_of_node ROLE - munged, and the jail's own, in a mount namespace that alone has the key.
start_auth_of_node() {
    prepare_munge
    # The kernel lets a process of uid munge, which root inside can become, into /proc/PID/root of another, and so to
    # the key, unless that one has a capability more than the jail leaves.
    vital munged unshare --mount --propagation private /usr/lib/cellblock/munged \
        --inh-caps=+net_bind_service --ambient-caps=+net_bind_service &
    wait_for "munged to answer" munge_answers
    if [ "${CELLBLOCK_JAIL_ROOT:-nobody}" != operator ]; then
        wait_for "the jail's munged to answer" munge_for_jail_answers
        read_only $MUNGE_FOR_JAIL
    fi
    # munged's own namespace has them writable.
    read_only /run/munge
}

# join_auth ROLE - wait for the munged beside this container.
join_auth() { wait_for "munged, which serves this pod, to answer" munge_answers; }

# start_auth ROLE - munged where there is no jail, and nobody but the administrator.
start_auth() {
    prepare_munge
    install -d -o munge -g munge -m 0700 /etc/munge /var/log/munge /var/lib/munge
    install -o munge -g munge -m 0400 "$SECRETS/munge.key" /etc/munge/munge.key
    vital munged node-supervise setpriv --reuid=munge --regid=munge --clear-groups \
        munged --foreground --max-ttl=$MUNGE_LIFE_S &
    wait_for "munged to answer" munge_answers
}
