# SPDX-License-Identifier: Apache-2.0
# Shell functions of the roles: the jail's users and groups on this node. Needs waiting.sh.
# docs/decisions/jail-accounts.md says what is copied and why.
# shellcheck shell=sh

# follow_accounts OPTIONS... - wait for a checked copy of the jail's accounts, and keep it up to date from then on.
# OPTIONS: of jail-accounts, where the jail is.
follow_accounts() {
    [ -w /var/lib/extrausers ] || install -d -m 0755 /var/lib/extrausers
    # The first try says what is wrong, once.
    jail-accounts --once "$@" ||
        wait_for "the jail's accounts; the line above says what is wrong with them" accounts_copied "$@"
    # It works, as the copy has shown, and is not given up.
    node-supervise --tries=1000000 jail-accounts "$@" &
}

# follow_accounts_of_jail - the same for a daemon without a jail: the volume's root/etc is mounted for it, or, on Kubernetes,
# the volume, read-only. There a folder of the volume can only be mounted when it exists, or it would be made, as part of a jail
# that is not assembled yet.
follow_accounts_of_jail() {
    if [ -d /mnt/jail-etc ]; then
        follow_accounts --etc /mnt/jail-etc
    else
        wait_for_jail
        follow_accounts --jail "$JAIL"
    fi
}

accounts_copied() { jail-accounts --once "$@" 2>/dev/null; }

# limit_users - from here on a user may have CELLBLOCK_USER_PROCESSES processes and threads, where that is set: what
# the daemon of this role starts inherits it. Root is not counted by the kernel. Less than the container may have, so
# that one user cannot take them all from the daemons.
limit_users() {
    [ -z "${CELLBLOCK_USER_PROCESSES:-}" ] ||
        prlimit --pid $$ --nproc="$CELLBLOCK_USER_PROCESSES:$CELLBLOCK_USER_PROCESSES" ||
        die "the limit of $CELLBLOCK_USER_PROCESSES processes a user cannot be set; see CELLBLOCK_USER_PROCESSES"
}

# limit_sshd - from here on a process has 64 MiB for its data: sshd, which is root, reads a line of a user's authorized_keys into memory
# however long it is, for anybody who wants to log in as that user. pam_limits takes it back for the session
# (/etc/security/limits.d/cellblock.conf).
# shellcheck disable=SC3045 # dash and bash have both options
limit_sshd() { ulimit -S -d 65536 || die "the memory of sshd cannot be bounded"; }
