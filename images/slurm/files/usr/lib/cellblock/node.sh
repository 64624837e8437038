# SPDX-License-Identifier: Apache-2.0
# Shell functions of cellblock-init, for containers with a jail: what is in reach of slurmd, slurmstepd and sshd.
# docs/threat-model.md says against whom.
# shellcheck shell=sh

# close_writes ROLE - Kubernetes gives a container whose root is read-only folders to write that everybody may write, without the
# mount options of the local cluster's (cellblock/cluster/engine/container_specs.py): give them both.
close_writes() {
    case $(stat -c %a /run) in *[2367]) ;; *) return 0 ;; esac
    for each in /run:0755:noexec /var/log:0755:noexec /var/lib/extrausers:0755:noexec /tmp:0711:noexec /var/tmp:0711:noexec \
        /etc/slurm:0755:noexec /var/spool:0711:exec /run/bcast:1777:exec; do
        folder=${each%%:*} options=${each##*:}
        mode=${each#*:}
        if mountpoint -q "$folder"; then
            chmod "${mode%:*}" "$folder"
            [ "$1" != worker ] || mount -o "remount,bind,nosuid,nodev,$options" "$folder"
        fi
    done
}

# Where users, whom sbcast lets write outside the jail, could write besides /run/bcast. Root goes on writing to /tmp: the
# PMIx server of a step with --no-jail does.
close_to_users() {
    chmod 0711 /tmp /var/tmp
    for folder in /run/lock /dev/shm /dev/mqueue; do
        [ ! -d $folder ] || read_only $folder
    done
}

# read_only FOLDER - read-only in this namespace, whatever is mounted there.
read_only() {
    mount --bind "$1" "$1"
    mount -o remount,bind,ro,nosuid,nodev,noexec "$1"
}

# The volume gives no rights outside the jail: the tasks' own mount of it lets set-user-ID programs work in there.
mount_volume_nosuid() {
    mount -o remount,bind,nosuid,nodev "${JAIL%/*}"
}

# share_pids - the PID namespace of jobs and sessions, in which they find none of the daemons here.
share_pids() {
    install -d -m 0700 /run/cellblock
    jail-enter --share-pids
}

# start_host_keys ROLE - sshd's host keys, in an agent that alone has them.
start_host_keys() {
    install -d -m 0755 /run/sshd
    # Of a run before this one.
    rm -f "$HOST_KEY_AGENT" "$HOST_KEY_AGENT.ready"
    vital "the agent of the host keys" unshare --mount --propagation private /usr/lib/cellblock/host-keys "$1" &
    wait_for "the agent of the host keys" test -e "$HOST_KEY_AGENT.ready"
}

# forget_secrets - take the secrets out of this namespace. Who needs one has it in a namespace of its own.
forget_secrets() {
    umount "$SECRETS"
    [ ! -e "$SECRETS/$KEY_OF_CLUSTER" ] ||
        die "$KEY_OF_CLUSTER is still in $SECRETS after umount: mount secrets there, do not copy them"
}
