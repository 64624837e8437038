# SPDX-License-Identifier: Apache-2.0
"""Decodes file capabilities: the value of the extended attribute security.capability, as words.

Format: struct vfs_cap_data of linux/capability.h, revisions 1 to 3, little endian; see capabilities(7).
"""

from __future__ import annotations

import struct

from cellblock.oci.model import MalformedImage

XATTR = "security.capability"
_EFFECTIVE = 0x000001
# Revision -> how many 32-bit words each of the sets has.
_WORDS = {0x01000000: 1, 0x02000000: 2, 0x03000000: 2}
_NAMES = (
    *("chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap"),
    *("linux_immutable", "net_bind_service", "net_broadcast", "net_admin", "net_raw", "ipc_lock"),
    *("ipc_owner", "sys_module", "sys_rawio", "sys_chroot", "sys_ptrace", "sys_pacct", "sys_admin"),
    *("sys_boot", "sys_nice", "sys_resource", "sys_time", "sys_tty_config", "mknod", "lease"),
    *("audit_write", "audit_control", "setfcap", "mac_override", "mac_admin", "syslog", "wake_alarm"),
    *("block_suspend", "audit_read", "perfmon", "bpf", "checkpoint_restore"),
)


def describe_capabilities(value: bytes) -> str:
    """In getcap(8)'s words: "cap_net_raw=ep", several sets separated by blanks.

    Raises MalformedImage when it is no such value.
    """
    words = _WORDS.get(struct.unpack_from("<I", value)[0] & 0xFF000000) if len(value) >= 4 else None
    if words is None or len(value) < 4 + 8 * words:
        raise MalformedImage(f"{value.hex()} is no file capability")
    pairs = struct.unpack_from(f"<{2 * words}I", value, 4)
    permitted = sum(word << 32 * index for index, word in enumerate(pairs[0::2]))
    inheritable = sum(word << 32 * index for index, word in enumerate(pairs[1::2]))
    effective = value[0] & _EFFECTIVE
    by_flags: dict[str, list[str]] = {}
    for number in range(64):
        bit = 1 << number
        flags = ("e" if effective and (permitted | inheritable) & bit else "") + (
            "i" if inheritable & bit else ""
        )
        flags += "p" if permitted & bit else ""
        if permitted & bit or inheritable & bit:
            name = _NAMES[number] if number < len(_NAMES) else str(number)
            by_flags.setdefault(flags, []).append(f"cap_{name}")
    return " ".join(f"{','.join(names)}={flags}" for flags, names in by_flags.items())
