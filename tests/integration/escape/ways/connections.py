# SPDX-License-Identifier: Apache-2.0
"""Attacks by connections and messages that occupy slurmd's threads before it knows who sends them."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

from tests.integration.escape.arena import WORKER, Arena, Outcome, broken, escaped, find_process, held, read
from tests.integration.escape.ways.judge import fresh, last_line

# By release, the upper byte of the version of Slurm's protocol.
_PROTOCOLS = {
    "22.05": 38,
    "23.02": 39,
    "23.11": 40,
    "24.05": 41,
    "24.11": 42,
    "25.05": 43,
    "25.11": 44,
    "26.05": 45,
}
_BODIES = """\
import select, socket, time
size, sent, live = 45 << 20, {}, []
for _ in range(30):
    one = socket.create_connection(("controller", 6817), 30)
    one.sendall(b"POST /metrics HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: %d\\r\\n\\r\\n" % (size + 1000))
    one.setblocking(False)
    sent[one] = 0
    live.append(one)
until = time.monotonic() + 60
while live and time.monotonic() < until:
    for one in select.select([], live, [], 1)[1]:
        try:
            sent[one] += one.send(bytes(65536))
        except BlockingIOError:
            continue
        except OSError:
            sent[one] = size
        if sent[one] >= size:
            live.remove(one)
print("sent in", len(sent), "connections", flush=True)
time.sleep(60)
"""
_HOLD_MUNGE = """\
import socket, time
held = {}
def missing():
    for number in range(400):
        one = held.get(number)
        try:
            if one and not one.recv(100, socket.MSG_DONTWAIT):
                one.close()
                one = None
        except BlockingIOError:
            pass
        except OSError:
            one = None
        if not one:
            one = socket.socket(socket.AF_UNIX)
            one.setblocking(False)
            try:
                one.connect("/run/munge/munge.socket.2")
            except OSError:
                one = None
        held[number] = one
missing()
print("held", sum(one is not None for one in held.values()), flush=True)
while True:
    time.sleep(0.01)
    missing()
"""
# An idle slurmd has a dozen.
_MOST_THREADS = 600
_MOST_MEMORY_KB = 400_000
_EXPANDED = 1_200_000_000
_LEFT_OPEN, _MOST_OPEN = 300, 200


def _slurmd(arena: Arena) -> tuple[str, int]:
    """Its number, and how many threads it has."""
    number = find_process(arena.cluster, "slurmd")
    status = arena.on_worker("cat", f"/proc/{number}/status").out
    threads = re.search(r"^Threads:\s+(\d+)$", status, flags=re.MULTILINE)
    return number, int(threads[1]) if threads else 0


def _variables(arena: Arena) -> str:
    protocol = _PROTOCOLS[arena.cluster.status.release]
    return f"env SLURMD_PORT={arena.variables['SLURMD_PORT']} PROTOCOL={protocol}"


def _ask(arena: Arena, user: str, attack: str) -> Outcome:
    """In a job on the worker. Its slurmd must be the same afterwards, and have threads left."""
    before, _ = _slurmd(arena)
    done = arena.srun("sh", "-c", f"{_variables(arena)} timeout 100 /escape/attack {attack}", user=user)
    after, threads = _slurmd(arena)
    if before != after:
        return escaped(f"slurmd ended: {last_line(done.out)}")
    if threads > _MOST_THREADS:
        return escaped(f"slurmd has {threads} threads")
    served = arena.cluster.on("login", "srun", "-w", WORKER, "true")
    return Outcome.read(done.out) if served.status == 0 else escaped(f"slurmd serves nobody: {served.err}")


def hold(arena: Arena, user: str) -> Outcome:
    """More connections, on which nothing is said, than a container may have threads."""
    return _ask(arena, user, "hold-connections")


def send_large(arena: Arena, user: str) -> Outcome:
    """Messages of 600 MB together, of which slurmd has most of each before it knows who sends it."""
    return _send_large(arena, user, "send-large", WORKER, "slurmd")


def send_large_to_slurmctld(arena: Arena, user: str) -> Outcome:
    """The same, to slurmctld: without it nobody on the cluster can do anything."""
    outcome = _send_large(arena, user, "send-large-to-slurmctld", "controller", "slurmctld")
    ping = arena.cluster.on("controller", "scontrol", "ping")
    return outcome if ping.status == 0 else escaped(f"slurmctld serves nobody: {ping.out}{ping.err}")


def send_bodies(arena: Arena, user: str) -> Outcome:
    """Bodies by HTTP, which slurmctld of 25.11 and later speaks, too: it takes 50 MB where none belongs."""
    before, out = _memory_kb(arena, "controller", "slurmctld"), fresh(arena)
    (out / "bodies.py").write_text(_BODIES)
    asked = ("-D", arena.inside(out), "-o", "said")
    job = arena.submit("exec timeout 100 python3 bodies.py", *asked, user=user).ok().strip()
    try:
        arena.cluster.wait_until("it has sent", lambda: "sent" in read(out / "said"))
        more = _memory_kb(arena, "controller", "slurmctld") - before
    finally:
        arena.cluster.on("controller", "scancel", job)
    said = f"{more} kB more; {last_line(read(out / 'said'))}"
    return escaped(f"slurmctld has {said}") if more > _MOST_MEMORY_KB else held(said)


def _send_large(arena: Arena, user: str, attack: str, hostname: str, daemon: str) -> Outcome:
    before = _memory_kb(arena, hostname, daemon)
    out = fresh(arena)
    command = f"{_variables(arena)} {_controller(arena)} /escape/attack {attack}"
    job = arena.submit(command, "-n1", "-o", f"{arena.inside(out)}/0", user=user)
    arena.cluster.wait_until("it has sent", lambda: "sent" in read(out / "0") or ": " in read(out / "0"))
    more = _memory_kb(arena, hostname, daemon) - before
    arena.wait(job)
    if more > _MOST_MEMORY_KB:
        return escaped(f"{daemon} has {more} kB more for messages of nobody's")
    return Outcome.read(read(out / "0"))


def _bring_compressed(arena: Arena, user: str, variables: str, then: str = "true") -> tuple[int, str]:
    """What an sbcast of blocks of zeros says, and its status; `then` is run while its job lasts."""
    here, bring = arena.inside(fresh(arena)), "sbcast -f --compress=lz4"
    # Slurm that was compiled without it says so, or knows no such option.
    script = f"""
        said=$({bring} /etc/passwd /run/bcast/few 2>&1) || {{ echo "$said" >&2; exit 1; }}
        case $said in *"not supported"*) echo "$said" >&2; exit 1 ;; esac
        truncate -s {_EXPANDED} {here}/file
        {variables} LD_PRELOAD=/escape/lib/launch.so {bring} {here}/file /run/bcast/blocks
        status=$?; {then}; exit $status"""
    done = arena.cluster.jail("salloc", "-Q", "-n1", "-w", WORKER, "sh", "-c", script, user=user)
    return done.status, done.err


def send_compressed(arena: Arena, user: str) -> Outcome:
    """A block of a file, of five megabytes, that becomes 1.2 GB in slurmd."""
    peak = ("awk", "/^VmHWM:/ { print $2 }", f"/proc/{find_process(arena.cluster, 'slurmd')}/status")
    before = int(arena.on_worker(*peak).ok())
    status, said = _bring_compressed(arena, user, f"EXPAND_TO={_EXPANDED}")
    more = int(arena.on_worker(*peak).ok()) - before
    if more > _MOST_MEMORY_KB:
        return escaped(f"slurmd had {more} kB more for a block of a file")
    return held(last_line(said)) if status else broken(f"the block was taken: {said}")


def leave_open(arena: Arena, user: str) -> Outcome:
    """Files of which the first block is brought and no other: slurmd has each open for five minutes."""
    number, out = find_process(arena.cluster, "slurmd"), fresh(arena)
    here = arena.inside(out)
    wait = f"touch {here}/there; until [ -e {here}/over ]; do sleep 0.1; done"
    with ThreadPoolExecutor(1) as thread:
        bringing = thread.submit(
            _bring_compressed, arena, user, f"EXPAND_TO=100000 LEAVE_OPEN={_LEFT_OPEN}", wait
        )
        try:
            arena.cluster.wait_until("all is sent", lambda: (out / "there").exists() or bringing.done())
            files = arena.on_worker("sh", "-c", "ls -l /proc/$0/fd | grep -c /run/bcast; true", number).ok()
        finally:
            (out / "over").touch()
        _, said = bringing.result()
    if int(files) > _MOST_OPEN:
        return escaped(f"slurmd has {files.strip()} files of one user's open")
    return held(f"{files.strip()} files are open: {last_line(said)}")


def _controller(arena: Arena) -> str:
    """Where slurmctld listens, for an attack."""
    address = arena.on_worker("getent", "ahostsv4", "controller").ok().split()[0]
    shown = arena.cluster.on("controller", "scontrol", "show", "config").ok()
    port = re.search(r"^SlurmctldPort\s*=\s*(\d+)", shown, flags=re.MULTILINE)
    assert port, shown
    return f"SLURMCTLD_ADDRESS={address} SLURMCTLD_PORT={port[1]}"


def _memory_kb(arena: Arena, hostname: str, daemon: str) -> int:
    number = arena.cluster.numbers_of(hostname, daemon)[0]
    return int(arena.cluster.on(hostname, "awk", "/^VmRSS:/ { print $2 }", f"/proc/{number}/status").ok())


def pass_to_many(arena: Arena, user: str) -> Outcome:
    """Messages for 60,000 nodes each."""
    return _ask(arena, user, "pass-to-many")


def pass_to_fewer(arena: Arena, user: str) -> Outcome:
    """Messages for fewer nodes than they say there are."""
    return _ask(arena, user, "pass-to-fewer")


def hold_munge(arena: Arena, user: str) -> Outcome:
    """Connections to munge's socket, each of which has a thread for two seconds; others follow them."""
    out = fresh(arena)
    (out / "hold.py").write_text(_HOLD_MUNGE)
    asked = ("-D", arena.inside(out), "-o", "said")
    number = arena.submit("exec timeout 300 python3 hold.py", *asked, user=user).ok().strip()
    try:
        arena.cluster.wait_until("it holds them", lambda: "held" in read(out / "said"))
        for _ in range(3):
            # Who asks is another user, of the same node.
            served = arena.srun("timeout", "30", "squeue", "--noheader", user="bob")
            if served.status:
                return escaped(f"another user's command is not served: {last_line(served.err)}")
        return held(last_line(read(out / "said")))
    finally:
        arena.cluster.on("controller", "scancel", number)
        arena.cluster.wait_until_none_completes()
