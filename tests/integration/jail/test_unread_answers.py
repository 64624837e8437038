# SPDX-License-Identifier: Apache-2.0
"""Clients that ask for all jobs and do not read the answer: slurmctld answers others meanwhile."""

from __future__ import annotations

import subprocess
import time

import pytest

from tests.integration.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.every_slurm]

# An answer of 5 MB, which is more than the kernel has room for.
_JOBS = 800
# slurmctld had a thread wait for each, for a minute (MessageTimeout), and has some 60.
_CLIENTS = 100
_MOST_S = 20
_SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/socket.h>
#include <unistd.h>
ssize_t recv(int fd, void *buffer, size_t size, int flags)
{
	ssize_t (*own)(int, void *, size_t, int) = dlsym(RTLD_NEXT, "recv");
	if (size > 1000000)
		sleep(90);
	return own(fd, buffer, size, flags);
}
ssize_t read(int fd, void *buffer, size_t size)
{
	ssize_t (*own)(int, void *, size_t) = dlsym(RTLD_NEXT, "read");
	if (size > 1000000)
		sleep(90);
	return own(fd, buffer, size);
}
"""


def test_who_reads_no_answer_keeps_nobody_waiting(cluster: LocalCluster, user: str) -> None:
    library = cluster.root / "home" / user / "unread.so"
    compiler = ["cc", "-shared", "-fPIC", "-xc", "-", "-o", str(library)]
    subprocess.run(compiler, input=_SOURCE, text=True, check=True)
    library.chmod(0o755)
    texts = " ".join(
        f"--{name}=$t" for name in ["comment", "job-name", "output", "error", "input", "mail-user"]
    )
    submit = f"""cd; t=$(head -c 1000 /dev/zero | tr '\\0' t)
        for i in $(seq {_JOBS}); do
            sbatch --hold {texts} --wrap true >/dev/null & [ $((i % 20)) != 0 ] || wait
        done; wait"""
    ask = f"""cd; for i in $(seq {_CLIENTS}); do
            LD_PRELOAD=./unread.so setsid timeout 60 squeue >/dev/null 2>&1 </dev/null & done; sleep 5"""
    try:
        cluster.jail("bash", "-c", submit, user=user, timeout_s=300).ok()
        assert len(cluster.jail("squeue", "-h", "-o", "%j", user=user).ok()) > _JOBS * 900
        cluster.jail("bash", "-c", ask, user=user).ok()
        begun = time.monotonic()
        cluster.jail("squeue", "-h", "--user=root", user=user).ok()
        assert time.monotonic() - begun < _MOST_S
    finally:
        cluster.jail("pkill", "-x", "squeue", user=user)
        cluster.on("controller", "scancel", f"--user={user}")
