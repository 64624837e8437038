# SPDX-License-Identifier: Apache-2.0
"""Runs as init of the machine of nfs_machine.py: an NFS server, two hosts, and commands that a test sends.

Standard library only. argv: the folder of requests, on the host; that of the kernel's modules.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

HOSTS = {"ada": 1, "bob": 2}
"""Names of the hosts, and the third number of their network."""
EXPORTS = {
    "volume": "rw,no_root_squash,no_subtree_check,insecure,fsid=1",
    "squashed": "rw,root_squash,no_subtree_check,insecure,fsid=2",
}
SERVER_DISK = Path("/srv")


def run(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done


def load_modules(modules: Path, wanted: list[str]) -> None:
    """insmod(8) with dependencies, for machines without kmod."""
    needs = dict(line.split(":", 1) for line in (modules / "modules.dep").read_text().splitlines())
    libc = ctypes.CDLL(None, use_errno=True)
    for name in wanted:
        path = next(one for one in needs if one.endswith(f"/{name}.ko"))
        for one in [*reversed(needs[path].split()), path]:
            with (modules / one).open("rb") as file:
                if libc.syscall(313, file.fileno(), b"", 0) and ctypes.get_errno() != 17:  # finit_module
                    raise RuntimeError(f"{one}: {os.strerror(ctypes.get_errno())}")


def start_server() -> None:
    for kind, place in (("tmpfs", "/var/lib/nfs"), ("nfsd", "/proc/fs/nfsd")):
        run("mount", "-t", kind, kind, place)
    run("mkfs.ext4", "-q", "-O", "ea_inode", "/dev/ubda")
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(SERVER_DISK))
    (SERVER_DISK / "disk").mkdir()
    run("mount", "-t", "ext4", "/dev/ubda", str(SERVER_DISK / "disk"))
    for name in ("etab", "rmtab", "xtab", "state"):
        Path("/var/lib/nfs", name).touch()
    # The root of what is exported: this machine's own root cannot be, not even as a way to the shares.
    run("exportfs", "-i", "-o", "ro,no_subtree_check,insecure,fsid=0", f"*:{SERVER_DISK}/disk")
    for name, options in EXPORTS.items():
        place = SERVER_DISK / "disk" / name
        place.mkdir(mode=0o777)
        place.chmod(0o777)
        # The server crosses from one export to another only where something is mounted.
        run("mount", "--bind", str(place), str(place))
        run("exportfs", "-i", "-o", options, f"*:{place}")
    # Nothing that a run before this one had locked is to be waited for.
    for name in ("nfsv4leasetime", "nfsv4gracetime"):
        Path("/proc/fs/nfsd", name).write_text("10\n")
    run("rpc.mountd", "-N", "3")
    run("rpc.nfsd", "-N", "3", "-V", "4.2", "4")
    Path("/proc/fs/nfsd/v4_end_grace").write_text("Y\n")


def start_host(name: str, number: int) -> int:
    """Namespaces like another machine's: network, name, processes, mounts, and the boot's identity."""
    script = f"""
        hostname {name}
        mount -t proc proc /proc
        mkdir -p /run/{name} && echo 0000000{number}-0000-4000-8000-000000000000 > /run/{name}/boot_id
        mount --bind /run/{name}/boot_id /proc/sys/kernel/random/boot_id
        exec sleep infinity
    """
    unshared = [
        "unshare",
        "--net",
        "--uts",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-euc",
        script,
    ]
    process = subprocess.Popen(unshared)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not children.read_text().split():
        time.sleep(0.01)
    pid = int(children.read_text().split()[0])
    run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    run("ip", "address", "add", f"10.0.{number}.1/24", "dev", name)
    run("ip", "link", "set", name, "up")
    inside = ["nsenter", "-t", str(pid), "-n"]
    run(*inside, "ip", "address", "add", f"10.0.{number}.2/24", "dev", "eth0")
    run(*inside, "ip", "link", "set", "eth0", "up")
    run(*inside, "ip", "link", "set", "lo", "up")
    return pid


def mount_shares(name: str, number: int, pid: int) -> None:
    inside = ["nsenter", "-t", str(pid), "-a"]
    for share, version in (("volume", "4.2"), ("squashed", "4.2"), ("plain", "4.1")):
        place = f"/mnt/{share}"
        source = "volume" if share == "plain" else share
        options = f"vers={version},hard,timeo=50,nosharecache,actimeo=1"
        run(*inside, "mount", "-t", "nfs4", "-o", options, f"10.0.{number}.1:/{source}", place)


def answer(folder: Path, request: Path, hosts: dict[str, int]) -> None:
    asked = json.loads(request.read_text())
    prefix = ["nsenter", "-t", str(hosts[asked["host"]]), "-a"] if asked["host"] in hosts else []
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **asked["environment"]}
    done = subprocess.run(
        [*prefix, *asked["command"]], capture_output=True, text=True, env=environment, cwd="/mnt"
    )
    text = json.dumps({"status": done.returncode, "out": done.stdout, "err": done.stderr})
    part = request.with_suffix(".part")
    part.write_text(text)
    part.rename(request.with_suffix(".done"))


def serve(folder: Path, hosts: dict[str, int]) -> None:
    seen = set[str]()
    (folder / "ready").write_text("")
    while not (folder / "stop").exists():
        for request in folder.glob("*.ask"):
            if request.name not in seen:
                seen.add(request.name)
                threading.Thread(target=answer, args=(folder, request, hosts), daemon=True).start()
        time.sleep(0.02)


def main() -> None:
    os.environ["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
    run("mount", "-t", "proc", "proc", "/proc")
    run("mount", "-t", "sysfs", "sysfs", "/sys")
    for place in ("/run", "/tmp", "/mnt"):
        run("mount", "-t", "tmpfs", "-o", "mode=1777" if place == "/tmp" else "mode=755", "tmpfs", place)
    for share in ("volume", "squashed", "plain", "requests"):
        Path("/mnt", share).mkdir()
    folder = Path("/mnt/requests")
    run("mount", "-t", "hostfs", "-o", sys.argv[1], "none", str(folder))
    try:
        run("ip", "link", "set", "lo", "up")
        load_modules(Path(sys.argv[2]), ["veth", "nfsd", "nfsv4"])
        start_server()
        hosts = {name: start_host(name, number) for name, number in HOSTS.items()}
        for name, number in HOSTS.items():
            mount_shares(name, number, hosts[name])
        serve(folder, hosts)
    except Exception:
        (folder / "failed").write_text(traceback.format_exc())
    finally:
        Path("/proc/sysrq-trigger").write_text("o")
        time.sleep(60)


main()
