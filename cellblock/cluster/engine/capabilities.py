# SPDX-License-Identifier: Apache-2.0
"""Lists the Linux capabilities that each container of the cluster keeps; all others are dropped.

Found by trial, one capability at a time: docs/decisions/cluster-capabilities.md has the evidence.
"""

from __future__ import annotations

from cellblock.cluster.definition.model import Role

# What cellblock-init does before a daemon runs: take ownership of /run/munge and of the copied key
# (CHOWN, FOWNER), write below folders that are munge's (DAC_OVERRIDE), become munge (SETUID, SETGID).
_INIT = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID")

# Making the jail's mounts and namespaces, and joining them (setns asks for both); cutting what its tasks may
# do (SETPCAP).
_JAIL = ("SETPCAP", "SYS_ADMIN", "SYS_CHROOT")

# What root in the jail needs so that apt and dpkg install packages as they should be: set-group-ID
# programs keep their bit (FSETID), programs get their file capabilities (SETFCAP).
_PACKAGES = ("FSETID", "SETFCAP")

_TABLE: dict[Role, tuple[str, ...]] = {
    # KILL: tini hands the signal to end on to a daemon of another user, which saves its state then.
    "controller": (*_INIT, "KILL"),
    # SETPCAP: slurmdbd, MariaDB and the exporter have no capability, and their roles give up the right
    # to one.
    "accounting": (*_INIT, "KILL", "SETPCAP"),
    "database": (*_INIT, "KILL", "SETPCAP"),
    # It starts as slurmrestd's user, and has none.
    "rest": (),
    "metrics": (*_INIT, "KILL", "SETPCAP"),
    # SYS_NICE: slurmstepd binds processes of other users to processors. KILL: it ends them.
    # NET_BIND_SERVICE: sshd, for users with a job there.
    "worker": (*_INIT, *_JAIL, *_PACKAGES, "KILL", "NET_BIND_SERVICE", "SYS_NICE"),
    # NET_BIND_SERVICE: sshd listens on port 22. KILL: it ends the sessions of other users.
    "login": (*_INIT, *_JAIL, *_PACKAGES, "KILL", "NET_BIND_SERVICE"),
}


def capabilities(role: Role) -> tuple[str, ...]:
    """Capabilities of the container of `role`, without CAP_; all others are dropped."""
    return tuple(sorted(_TABLE[role]))
