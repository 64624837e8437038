#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts and ends a real Kubernetes on this machine, for tests.

usage: kubernetes up DIR [NODES]   start one of so many nodes (1); prints the path of the KUBECONFIG
       kubernetes down DIR         end it, and what runs in it

make-kubernetes installs this beside `bin`, the compiled programs, and pause.tar, the image `pause`, whose
container holds a pod's namespaces. All of it is in DIR: `bin/kubectl`, `processes` (NAME PID, a line for
each process that was started), `pki`, `log`. The nodes are this host: pods of node N have addresses of
10.88.N.0/24; Services those of 10.96.0.0/16; 10.96.0.10 is the host's own, where names are asked for.
README.md says what else differs from a Kubernetes of machines.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUN = Path("/run/kubernetes-test")
CGROUPS = Path("/sys/fs/cgroup")
DNS = "10.96.0.10"
API_PORT = 16443
ETCD_PORT = 12379
PAUSE = "localhost/pause:1"
_NEEDED = ("containerd", "ctr", "runc", "etcd", "iptables", "conntrack", "openssl", "dnsmasq")
_WAIT_S = 120

_CONTAINERD = """\
version = 2
root = "{place}/containerd"
state = "{run}"
[grpc]
address = "{run}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{place}/cni"
"""


class Failed(Exception):
    """What was not possible, and what to do next."""


class Local:
    """The Kubernetes of a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder.resolve()
        self.bin, self.pki, self.log = (self.folder / name for name in ("bin", "pki", "log"))
        self.configuration = self.folder / "admin.kubeconfig"
        self.processes = self.folder / "processes"

    def up(self, nodes: int) -> None:
        """Start all of it. Raises Failed."""
        missing = [name for name in _NEEDED if not shutil.which(name)]
        if missing:
            raise Failed(f"not installed: {', '.join(missing)}; README.md names the packages")
        if self.processes.exists():
            raise Failed(f"{self.folder} has one that runs; end it first: kubernetes down {self.folder}")
        for folder in (self.pki, self.log, RUN):
            folder.mkdir(parents=True, exist_ok=True)
        if not self.bin.exists():
            self.bin.symlink_to(HERE / "bin")
        (self.folder / "hosts").touch()
        address = _address()
        self._certificates(nodes, address)
        self._control_plane(address)
        for number in range(1, nodes + 1):
            self._node(number, address)
        self._network()
        for number in range(1, nodes + 1):
            self._until(f"node-{number}", lambda number=number: self._is_ready(number))  # type: ignore[misc]
        self._until("the default service account", lambda: self._asks("get", "serviceaccount", "default"))
        sys.stdout.write(f"{self.configuration}\n")

    def down(self) -> None:
        """End all that runs, and forget it. What is left are logs, and images."""
        if not self.processes.exists():
            return
        lines = [line.split() for line in self.processes.read_text().splitlines()]
        started = {name: int(pid) for name, pid in lines}
        # A kubelet would start again what ends.
        _end([pid for name, pid in started.items() if name.startswith("kubelet-")])
        for socket in RUN.glob("node-*/containerd.sock"):
            tasks = ("ctr", "-a", str(socket), "-n", "k8s.io", "tasks")
            for task in _say(*tasks, "ls", "-q").split():
                _say(*tasks, "kill", "-s", "KILL", "-a", task)
        _end(list(reversed(started.values())))
        for folder in RUN.glob("node-*"):
            _end([int(pid) for pid in _say("pgrep", "-f", f"containerd-shim.* -address {folder}/").split()])
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in sorted(mounts, reverse=True):
            if mount.startswith((f"{self.folder}/", f"{RUN}/")):
                _say("umount", "--lazy", mount)
        for link in json.loads(_say("ip", "-json", "link") or "[]"):
            if link["ifname"].startswith("kube") and link["ifname"][4:].isdigit():
                _say("ip", "link", "delete", link["ifname"])
        _say("ip", "address", "delete", f"{DNS}/32", "dev", "lo")
        _say(str(self.bin / "kube-proxy"), "--cleanup")
        for path in (RUN, self.folder / "etcd", *self.folder.glob("node-*/kubelet")):
            shutil.rmtree(path, ignore_errors=True)
        self.processes.unlink()

    def _start(self, name: str, *command: str) -> int:
        with (self.log / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        with self.processes.open("a") as file:
            file.write(f"{name} {process.pid}\n")
        return process.pid

    def _until(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _WAIT_S
        while not holds():
            if time.monotonic() > deadline:
                raise Failed(f"after {_WAIT_S} s, still waiting for {what}; look into {self.log}")
            time.sleep(0.3)

    def _asks(self, *arguments: str) -> bool:
        return bool(_say(str(self.bin / "kubectl"), f"--kubeconfig={self.configuration}", *arguments))

    def _is_ready(self, number: int) -> bool:
        """Whether a node is ready, and the scheduler takes it for that, which is some seconds later."""
        kubectl = (str(self.bin / "kubectl"), f"--kubeconfig={self.configuration}", "get", "--output=json")
        said = _say(*kubectl, f"node/node-{number}")
        if not said:
            return False
        node = json.loads(said)
        kinds = {one["type"] for one in node["status"].get("conditions", ()) if one["status"] == "True"}
        return "Ready" in kinds and not node["spec"].get("taints")

    def _certificates(self, nodes: int, address: str) -> None:
        ca = ("-CA", f"{self.pki}/ca.crt", "-CAkey", f"{self.pki}/ca.key", "-CAcreateserial")
        new = ("openssl", "req", "-newkey", "rsa:2048", "-nodes")
        usages = "keyUsage=critical,keyCertSign,cRLSign,digitalSignature"
        files = ("-keyout", f"{self.pki}/ca.key", "-out", f"{self.pki}/ca.crt")
        _run(*new, "-x509", "-days", "3650", "-subj", "/CN=test", "-addext", usages, *files)
        api = ("DNS:kubernetes", "DNS:kubernetes.default", "DNS:kubernetes.default.svc", "DNS:localhost")
        wanted = {
            "apiserver": ("/CN=kube-apiserver", (*api, "IP:127.0.0.1", "IP:10.96.0.1", f"IP:{address}")),
            "admin": ("/O=system:masters/CN=admin", ("DNS:admin",)),
            "controller-manager": ("/CN=system:kube-controller-manager", ("DNS:controller-manager",)),
            "scheduler": ("/CN=system:kube-scheduler", ("DNS:scheduler",)),
        }
        for name in (f"node-{number}" for number in range(1, nodes + 1)):
            wanted[name] = (f"/O=system:nodes/CN=system:node:{name}", (f"DNS:{name}", f"IP:{address}"))
        for name, (subject, names) in wanted.items():
            key, request = f"{self.pki}/{name}.key", f"{self.pki}/{name}.csr"
            _run(*new, "-keyout", key, "-out", request, "-subj", subject)
            extensions = self.pki / f"{name}.ext"
            extensions.write_text(f"subjectAltName={','.join(names)}\n")
            signed = ("-out", f"{self.pki}/{name}.crt", "-days", "3650", "-extfile", str(extensions))
            _run("openssl", "x509", "-req", "-in", request, *ca, *signed)
            self._write_kubeconfig(name)
        _run("openssl", "genrsa", "-out", f"{self.pki}/accounts.key", "2048")
        public = f"{self.pki}/accounts.pub"
        _run("openssl", "rsa", "-in", f"{self.pki}/accounts.key", "-pubout", "-out", public)

    def _write_kubeconfig(self, name: str) -> None:
        server = {"server": f"https://127.0.0.1:{API_PORT}", "certificate-authority": f"{self.pki}/ca.crt"}
        user = {"client-certificate": f"{self.pki}/{name}.crt", "client-key": f"{self.pki}/{name}.key"}
        made = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": server}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
            "current-context": "test",
        }
        (self.folder / f"{name}.kubeconfig").write_text(json.dumps(made, indent=1))

    def _control_plane(self, address: str) -> None:
        etcd = f"http://127.0.0.1:{ETCD_PORT}"
        data = f"--data-dir={self.folder}/etcd"
        clients = (f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}")
        peers = f"--listen-peer-urls=http://127.0.0.1:{ETCD_PORT + 1}"
        self._start("etcd", "etcd", data, *clients, peers, "--unsafe-no-fsync")
        pki = self.pki
        self._start(
            "apiserver",
            f"{self.bin}/kube-apiserver",
            *(f"--etcd-servers={etcd}", f"--secure-port={API_PORT}", f"--advertise-address={address}"),
            *("--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=Node,RBAC"),
            *("--allow-privileged=true", f"--client-ca-file={pki}/ca.crt"),
            *(f"--tls-cert-file={pki}/apiserver.crt", f"--tls-private-key-file={pki}/apiserver.key"),
            f"--kubelet-client-certificate={pki}/admin.crt",
            f"--kubelet-client-key={pki}/admin.key",
            "--kubelet-preferred-address-types=InternalIP",
            f"--service-account-key-file={pki}/accounts.pub",
            f"--service-account-signing-key-file={pki}/accounts.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--feature-gates=TTLAfterFinished=true",
        )
        self._until("the API server", lambda: self._asks("get", "--raw=/readyz"))
        self._start(
            "controller-manager",
            f"{self.bin}/kube-controller-manager",
            *(f"--kubeconfig={self.folder}/controller-manager.kubeconfig", "--leader-elect=false"),
            *(f"--root-ca-file={pki}/ca.crt", f"--service-account-private-key-file={pki}/accounts.key"),
            *(f"--cluster-signing-cert-file={pki}/ca.crt", f"--cluster-signing-key-file={pki}/ca.key"),
            *("--use-service-account-credentials=true", "--feature-gates=TTLAfterFinished=true"),
            # Tests do not wait for the five minutes that a dead machine has by default.
            *("--node-monitor-grace-period=20s", "--pod-eviction-timeout=30s"),
        )
        kubeconfig = f"--kubeconfig={self.folder}/scheduler.kubeconfig"
        self._start("scheduler", f"{self.bin}/kube-scheduler", kubeconfig, "--leader-elect=false")

    def _node(self, number: int, address: str) -> None:
        name, place, run = f"node-{number}", self.folder / f"node-{number}", RUN / f"node-{number}"
        for folder in (place / "cni", place / "pods", place / "containers", run):
            folder.mkdir(parents=True, exist_ok=True)
        (place / "cni/10-bridge.conflist").write_text(json.dumps(_pod_network(number, place)))
        text = _CONTAINERD.format(place=place, run=run, pause=PAUSE)
        (place / "containerd.toml").write_text(text)
        (place / "kubelet.yaml").write_text(json.dumps(self._kubelet(number)))
        _make_cgroups(number)
        # Kubelets keep the logs of pods in one place, and remove those of pods that they do not know.
        logs = (("pods", "/var/log/pods"), ("containers", "/var/log/containers"))
        for _, target in logs:
            Path(target).mkdir(parents=True, exist_ok=True)
        binds = " && ".join(f"mount --bind {place}/{own} {target}" for own, target in logs)
        holder = ("unshare", "--mount", "--propagation=slave", "sh", "-c", f"{binds} && exec sleep infinity")
        pid = self._start(f"namespace-{number}", *holder)
        inside = ("nsenter", "--mount", f"--target={pid}")
        found = (*inside, "sh", "-c", "mountpoint -q /var/log/containers && echo yes")
        self._until(f"the mounts of {name}", lambda: bool(_say(*found)))
        config = f"--config={place}/containerd.toml"
        self._start(f"containerd-{number}", *inside, "containerd", config)
        ctr = ("ctr", "-a", f"{run}/containerd.sock")
        self._until(f"containerd of {name}", lambda: bool(_say(*ctr, "version")))
        _run(*ctr, "-n", "k8s.io", "images", "import", f"{HERE}/pause.tar")
        self._start(
            f"kubelet-{number}",
            *inside,
            f"{self.bin}/kubelet",
            *(f"--kubeconfig={self.folder}/{name}.kubeconfig", f"--config={place}/kubelet.yaml"),
            *(f"--root-dir={place}/kubelet", f"--cert-dir={place}/pki", "--container-runtime=remote"),
            f"--container-runtime-endpoint=unix://{run}/containerd.sock",
            *(f"--hostname-override={name}", f"--node-ip={address}"),
        )

    def _kubelet(self, number: int) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": f"{self.pki}/ca.crt"},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": f"{self.pki}/node-{number}.crt",
            "tlsPrivateKeyFile": f"{self.pki}/node-{number}.key",
            "port": 10250 + 10 * number,
            "healthzPort": 10251 + 10 * number,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/kubernetes-test-{number}",
            "failSwapOn": False,
            "clusterDNS": [DNS],
            "clusterDomain": "cluster.local",
            "nodeStatusUpdateFrequency": "5s",
            # This machine is not the nodes': what it has left is no reason to end pods.
            "evictionHard": {},
            "enforceNodeAllocatable": [],
        }

    def _network(self) -> None:
        """Addresses of Services, and names."""
        options = ("--hostname-override=node-1", "--cluster-cidr=10.88.0.0/16", "--conntrack-max-per-core=0")
        self._start("proxy", f"{self.bin}/kube-proxy", f"--kubeconfig={self.configuration}", *options)
        _run("ip", "address", "replace", f"{DNS}/32", "dev", "lo")
        hosts = self.folder / "hosts"
        own = ("--keep-in-foreground", "--no-hosts", "--no-resolv", "--user=root", "--pid-file=")
        # Bare names and addresses of pods that it does not know are not there: it has nobody to ask.
        alone = ("--domain-needed", "--bogus-priv")
        where = (f"--listen-address={DNS}", "--bind-interfaces", "--local=/cluster.local/")
        dns = self._start("dns", "dnsmasq", *own, *alone, *where, f"--addn-hosts={hosts}")
        kubectl = (f"{self.bin}/kubectl", str(self.configuration))
        self._start("names", sys.executable, str(HERE / "names.py"), *kubectl, str(hosts), str(dns))


def _pod_network(number: int, place: Path) -> dict[str, object]:
    """A bridge of the node's."""
    addresses = {
        "type": "host-local",
        "dataDir": f"{place}/addresses",
        "ranges": [[{"subnet": f"10.88.{number}.0/24"}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {
        "type": "bridge",
        "bridge": f"kube{number}",
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": addresses,
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": f"kube{number}", "plugins": [bridge, ports]}


def _make_cgroups(number: int) -> None:
    """A group of the node's own in each hierarchy: kubelets end pods below theirs that they do not know."""
    name = f"kubernetes-test-{number}"
    if (CGROUPS / "cgroup.controllers").exists():
        (CGROUPS / name).mkdir(exist_ok=True)
        return
    for hierarchy in (path for path in CGROUPS.iterdir() if (path / "cgroup.procs").exists()):
        (hierarchy / name).mkdir(exist_ok=True)
    for file in ("cpuset.cpus", "cpuset.mems"):
        whole = CGROUPS / "cpuset" / file
        if whole.exists():
            (CGROUPS / "cpuset" / name / file).write_text(whole.read_text())


def _address() -> str:
    """This machine's address, as others see it."""
    route = json.loads(_say("ip", "-json", "-4", "route", "get", "192.0.2.1") or "[]")
    if route:
        return str(route[0]["prefsrc"])
    found = _say("hostname", "--all-ip-addresses").split()
    if not found:
        raise Failed("this machine has no address besides 127.0.0.1; give it one: `ip address add`")
    return found[0]


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{' '.join(command)} ended with status {done.returncode}: {done.stderr.strip()}")


def _say(*command: str) -> str:
    """What a command prints; nothing when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode else done.stdout


def _end(pids: Sequence[int]) -> None:
    """Ask processes to end, and kill those that are there two seconds later."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline and any(Path(f"/proc/{pid}/exe").exists() for pid in pids):
            time.sleep(0.05)


def main(arguments: Sequence[str]) -> int:
    """The command line; returns the exit status."""
    if len(arguments) < 2 or arguments[0] not in ("up", "down"):
        sys.stderr.write(__doc__)
        return 64
    verb, folder, *rest = arguments
    try:
        one = Local(Path(folder))
        if verb == "up":
            one.up(int(rest[0]) if rest else 1)
        else:
            one.down()
    except Failed as error:
        sys.stderr.write(f"kubernetes: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
