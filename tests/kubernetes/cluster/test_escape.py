# SPDX-License-Identifier: Apache-2.0
"""The escape suite from the worker of a pod, and the ways out that only Kubernetes has; docs/threat-model.md.

Its cases by programs run as they are, as a user and as root inside, and of those by options of Slurm's
commands what needs nothing of the local cluster. The worker has the capabilities that are rendered, no more.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml

from tests.integration.escape.arena import WORKER, Arena, Outcome
from tests.integration.escape.cases import CASES, Case
from tests.integration.escape.ways import libraries, privileges, steps, streams
from tests.integration.local_cluster import Unclear
from tests.kubernetes.helpers.enforced_policies import addresses, enforced
from tests.kubernetes.helpers.kubernetes import Kubernetes, machine_address
from tests.kubernetes.helpers.pod_cluster import ATTACK, pod_arena
from tests.kubernetes.helpers.small_cluster import Site
from tests.node_pods.http_server import serving

pytestmark = pytest.mark.integration

_LEVEL = "capabilities"
_USERS = ("root", "eve")
# Cases that need more than commands in the cluster's containers.
_WAYS = (
    streams.directory_as_input,
    streams.output_by_proc,
    streams.output_below_proc,
    streams.input_by_proc,
    streams.input_by_descriptor,
    streams.folder_by_proc,
    streams.output_in_conf_cache,
    streams.output_in_spool,
    steps.enter_init,
    steps.task_prolog,
    steps.task_epilog,
    steps.odd_steps,
    libraries.preloaded_library,
    privileges.set_user_id_by_slurmd,
    privileges.capabilities_by_slurmd,
    privileges.device_by_slurmd,
    privileges.device_inside,
)
_PROGRAMS = [case for case in CASES if not case.way and case.held_at(_LEVEL)]
_JOBS = [case for case in CASES if case.way in _WAYS and case.held_at(_LEVEL)]
_API = "https://10.96.0.1"
_METADATA = "169.254.169.254"
_WRITE_GROUPS = """
mount -t cgroup -o devices none /mnt; mount -t cgroup2 none /mnt
find /sys/fs/cgroup -type f -writable 2>/dev/null | sed 's/^/writable: /'
for f in $(find /sys/fs/cgroup -name cgroup.procs); do (echo 0 >$f) 2>/dev/null && echo "writable: $f"; done
grep ' /mnt ' /proc/self/mounts
"""


@pytest.fixture(scope="module")
def arena(small: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with pod_arena(small, tmp_path_factory.mktemp("escape")) as one:
        yield one


@pytest.mark.parametrize("case", [pytest.param(one, id=one.id) for one in _PROGRAMS + _JOBS])
def test_holds_in_a_pod(case: Case, arena: Arena) -> None:
    if case.way:
        outcome = case.way(arena, case.user)
    else:
        names = [other.name for other in _PROGRAMS if other.user == case.user]
        outcome = arena.batch(_LEVEL, case.user, names)[case.name]
    if outcome.kind == "broken":
        arena.forget(_LEVEL, case.user)
        raise Unclear(outcome.what)
    assert outcome.kind in ("held", "absent"), outcome.what


@pytest.mark.parametrize(
    "name", ["see-processes", "signal-victim", "signal-slurmd", "change-priority", "agent-socket"]
)
def test_leads_somewhere_outside_a_jail(name: str, arena: Arena) -> None:
    """Or the test above would prove nothing: the same in the pod, with its capabilities and no jail."""
    variables = [f"{key}={value}" for key, value in arena.variables.items()]
    done = arena.on_worker("env", *variables, "timeout", "10", ATTACK, name)
    assert Outcome.read(done.out).kind == "escaped", done


def job(arena: Arena, user: str, script: str) -> str:
    """What a script of sh prints on the worker, in the jail."""
    done = arena.srun("sh", "-c", script, user=user)
    return done.out + done.err


def test_pods_of_nodes_have_no_token(arena: Arena, small: Site) -> None:
    """Whoever gets out of a jail finds none to be somebody with to Kubernetes."""
    for host in (WORKER, "login", "controller"):
        look = "ls -d /var/run/secrets/kubernetes.io /run/secrets/kubernetes.io 2>/dev/null; "
        look += "grep serviceaccount /proc/self/mountinfo; true"
        assert arena.cluster.on(host, "sh", "-c", look).ok() == ""
    for user in _USERS:
        assert "kubernetes" not in job(arena, user, "ls -R /run/secrets /var/run/secrets; true")
    pods = small.kubernetes.get("pods", f"--namespace={small.space}")["items"]
    assert pods
    for pod in pods:
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert not [one for one in pod["spec"]["volumes"] if "serviceAccountToken" in str(one)]


@pytest.mark.parametrize("user", _USERS)
def test_the_api_tells_a_job_nothing(user: str, arena: Arena, small: Site) -> None:
    """It answers whoever has no token as nobody, who may know its version."""
    ask = "curl -sk -m 20 -o /dev/null -w '%{http_code} '"
    space = f"{_API}/api/v1/namespaces/{small.space}"
    paths = ("secrets", "pods", "configmaps/slurm-configuration", "pods/worker-1/exec?command=id")
    said = job(arena, user, "; ".join(f"{ask} '{space}/{path}'" for path in paths))
    assert said.split() == ["403"] * len(paths)
    assert job(arena, user, f"{ask} {_API}/version").split() == ["200"], "it is reached"


@pytest.mark.parametrize("user", _USERS)
def test_the_kubelet_tells_a_job_nothing(user: str, arena: Arena, small: Site) -> None:
    address = machine_address(small.kubernetes)
    for node in small.kubernetes.get("nodes")["items"]:
        port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        run = f"run/{small.space}/controller-0/slurmctld"
        asked = [f"curl -sk -m 20 -w ' %{{http_code}} ' https://{address}:{port}/pods"]
        asked.append(f"curl -sk -m 20 -w ' %{{http_code}} ' -X POST -d cmd=id https://{address}:{port}/{run}")
        said = job(arena, user, "; ".join(asked))
        assert said.split() == ["Unauthorized", "401"] * 2
        # The port that answers anybody, which kubelets had.
        refused = "7"
        assert job(arena, user, f"curl -s -m 20 http://{address}:10255/pods; echo $?").strip() == refused


@pytest.mark.parametrize("user", _USERS)
def test_volumes_of_other_pods_and_of_the_machine_are_not_in_reach(
    user: str, arena: Arena, small: Site
) -> None:
    """The machine has all of them below one folder; a job's tree leads to its own pod's, and not to that."""
    for number in ("1", "self"):
        look = (
            "cat /proc/$0/mountinfo | cut -d ' ' -f 5,10-; ls /var/lib/kubelet /var/lib/containerd /host 2>&1"
        )
        seen = job(arena, user, look.replace("$0", number))
        for where in ("/var/lib/kubelet/", "/kubelet/pods", "controller-state", "accounting-archive"):
            assert where not in seen
    # mountinfo says where the jail's volume is on the machine; that leads nowhere.
    volumes = small.folder / "volumes"
    secret = volumes / "state/escape-secret"
    secret.write_text(arena.secret)
    doors = ("", "/proc/1/root", "/proc/self/root", "/..", "/mnt/jail", "/mnt/jail/..")
    tried = "; ".join(f"cat {door}{secret} {door}{volumes}/canary" for door in doors)
    assert arena.secret not in job(arena, user, tried)


@pytest.mark.parametrize("user", _USERS)
def test_processes_devices_and_groups_of_the_machine_are_not_in_sight(user: str, arena: Arena) -> None:
    processes = job(arena, user, "cat /proc/[0-9]*/comm")
    assert not {"slurmd", "munged", "kubelet", "containerd", "etcd", "pause", "tini"} & set(processes.split())
    devices = set(job(arena, user, "ls /dev").split())
    allowed = "console core fd fuse full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero"
    assert devices <= set(allowed.split()), "no disk, no memory, no device of the machine"
    tried = job(arena, user, _WRITE_GROUPS)
    assert "writable" not in tried
    assert " /mnt cgroup" not in tried


@contextmanager
def metadata_server() -> Iterator[int]:
    """A server of metadata, as a machine of a cloud has one; its port."""
    address = (f"{_METADATA}/32", "dev", "lo")
    subprocess.run(["ip", "address", "replace", *address], check=True)
    try:
        with serving(lambda *_request: (200, b"the machine's credentials"), _METADATA) as url:
            yield int(url.rpartition(":")[2])
    finally:
        subprocess.run(["ip", "address", "delete", *address], check=False)


def test_rendered_policies_hold_jobs_and_let_slurm_work(
    arena: Arena, small: Site, kubernetes: Kubernetes
) -> None:
    """This Kubernetes enforces no policy, which the first questions show; then iptables does, as they say."""
    policies = list(yaml.safe_load_all((small.folder / "rendered/network.yaml").read_text()))
    pods = addresses(kubernetes.get("pods", f"--namespace={small.space}")["items"])
    ip = {one.labels["app.kubernetes.io/component"]: one.ip for one in pods}
    closed = {
        "database": (ip["database"], 3306),
        # What the fixture closes.
        "the API": ("10.96.0.1", 443),
        "a kubelet": (machine_address(kubernetes), 10260),
    }
    opened = {"slurmctld": (ip["controller"], 6817), "slurmdbd": (ip["accounting"], 6819)}

    def reached(where: dict[str, tuple[str, int]]) -> set[str]:
        """By a job; a port where nothing listens answers, too, unless a policy does."""
        say = "timeout 5 bash -c ': </dev/tcp/{}/{}' 2>/dev/null && echo '{}'"
        asked = "; ".join(say.format(*to, name) for name, to in where.items())
        return set(job(arena, "eve", f"{asked}; true").splitlines())

    with metadata_server() as port:
        closed["metadata"] = (_METADATA, port)
        assert reached(closed) == {"metadata", "database", "the API", "a kubelet"}
        with enforced(policies, pods):
            assert reached(closed) == set()
            assert reached(opened) == set(opened)
            hosts = arena.cluster.jail("srun", "--nodes=2", "--chdir=/", "hostname", user="eve").ok()
            assert set(hosts.split()) == {"worker-0", "worker-1"}
            script = "#!/bin/sh\nsrun hostname >/home/eve/hosts\n"
            sent = arena.cluster.jail(
                "sbatch", "--parsable", "--chdir=/home/eve", "--nodes=2", user="eve", stdin=script
            )
            arena.wait(sent)
            said = arena.cluster.jail("cat", "/home/eve/hosts", user="eve").ok()
            assert set(said.split()) == {"worker-0", "worker-1"}
            number = sent.out.strip()
            told = ("sacct", "--noheader", "--allocations", f"--jobs={number}", "--format=State")
            arena.cluster.wait_until(
                "its record", lambda: "COMPLETED" in arena.cluster.jail(*told, user="eve").out, 60
            )
