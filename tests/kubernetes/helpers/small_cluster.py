# SPDX-License-Identifier: Apache-2.0
"""Makes a cluster as small as it can be, in a namespace of its own, on the real Kubernetes of the tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cellblock.bench import kubernetes as kubernetes_bench
from cellblock.bench.harness.real_kubernetes import HOST, older_folder
from cellblock.bench.harness.registry import push, registry
from cellblock.bench.kubernetes import render_to, volumes
from cellblock.build import BuildRequest, build_images
from cellblock.cluster.proof_user import ENSURE_SCRIPT, MAY_SUBMIT, PROOF_USER
from cellblock.events import Events
from tests.kubernetes.helpers.kubernetes import Kubernetes

SMALL = "resources: {cpu: 1, memory: 512Mi}, requests: {cpu: 50m, memory: 64Mi}, grace: 10s"
"""Of a node set: one machine of two processors has all of them."""
REPOSITORY = f"localhost/cellblock-{os.getpid()}"
"""Of the images' names: those of localhost/cellblock mean what any checkout of this machine loaded last."""
_PLACE = """\
kubernetes:
  namespace: {space}
  registry: {repository}
  images: {{jail: "{jail}", jail-init: "{jail_init}"}}
  cgroup: disabled
  jail: {{size: 1Gi, storage_class: by-hand, plain_http: true}}
  state: {{size: 1Gi, storage_class: by-hand}}
  database: {{size: 1Gi, storage_class: by-hand}}
"""
ROLES = ("controller", "worker", "login", "jail-init")


@dataclass(frozen=True)
class Site:
    """The cluster."""

    kubernetes: Kubernetes
    space: str
    folder: Path
    """Of its cluster file, cluster.yaml; `volumes/jail` is the jail's volume."""

    def slurm(self, *command: str) -> str:
        """What a command of Slurm's prints in slurmctld's container."""
        return self.kubernetes.inside("controller-0", *command, container="slurmctld", namespace=self.space)

    def jail(self, *command: str, user: str = PROOF_USER) -> str:
        """What `command` prints in the jail of the login node."""
        enter = ("jail-enter", "--plan", "/etc/cellblock/jail.fstab", "--user", user, "--")
        return self.kubernetes.inside("login-0", *enter, *command, namespace=self.space)

    def submit(self, *options: str) -> str:
        """The number of a batch job that says nothing."""
        return self.jail("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", *options).strip()

    def job(self, number: str) -> dict[str, str]:
        """The first field of each line of what scontrol shows, and the whole AdminComment."""
        said = [line.strip() for line in self.slurm("scontrol", "show", "job", number).splitlines()]
        fields = (line.split(" ", 1)[0].partition("=") for line in said)
        found = {key: value for key, _, value in fields}
        for line in said:
            if line.startswith("AdminComment="):
                found["AdminComment"] = line.removeprefix("AdminComment=")
        return found

    def node(self, name: str) -> tuple[str, str]:
        """State and reason."""
        shown = self.slurm("sinfo", "--noheader", "--Node", f"--nodes={name}", "--format=%T|%E")
        state, _, reason = shown.splitlines()[0].partition("|")
        return state, reason

    def acts(self) -> bool:
        """Whether slurmctld answers."""
        where = (f"--namespace={self.space}", "controller-0", "--container=slurmctld")
        return self.kubernetes.run("exec", *where, "--", "scontrol", "ping").returncode == 0

    def takes_jobs_of_the_user(self, accounting: bool) -> bool:
        """Whether slurmctld knows PROOF_USER, with accounting as one who may submit."""
        ask = f"getent passwd {PROOF_USER} && {{ {MAY_SUBMIT if accounting else 'true'}\n}}"
        where = (f"--namespace={self.space}", "controller-0", "--container=slurmctld")
        done = self.kubernetes.run("exec", *where, "--", "sh", "-c", ask, PROOF_USER)
        return done.returncode == 0

    def until(self, what: str, condition: Callable[[], bool], seconds: float = 120) -> None:
        """Wait for `condition`. Raises CellblockError with the pods when it does not come in time."""
        self.kubernetes.wait(what, condition, seconds)


def bring_images(
    kubernetes: Kubernetes, roles: Sequence[str] = ROLES, variant: str = "debian13", *, jail: bool = True
) -> None:
    """Have the images of `roles` on the nodes, and that of the jail where `jail_image` finds it."""
    if "jail-init" in roles and init_variant(variant) != variant:
        bring_images(kubernetes, ("jail-init",), init_variant(variant), jail=False)
        roles = [role for role in roles if role != "jail-init"]
    images = (*roles, *(("jail",) if jail else ()))
    result = build_images(BuildRequest(images, variant), Events())
    assert kubernetes_bench.bring_images(kubernetes, result, roles) == REPOSITORY
    if jail:
        assert kubernetes_bench.jail_layout(kubernetes, result) == jail_image(kubernetes, variant)


def init_variant(variant: str) -> str:
    """Of which variant jail-init is for a cluster of `variant`: debian12 cannot have one."""
    return "debian13" if variant == "debian12" else variant


def own_name(image: str, tag: str = "debian13") -> str:
    """The name of an image here."""
    return f"{REPOSITORY}/{image}:{tag}"


def jail_image(kubernetes: Kubernetes, variant: str = "debian13") -> str:
    """What skopeo calls the jail's image."""
    return f"oci:{kubernetes.folder}/images-jail-{variant}:jail:{variant}"


@contextmanager
def running_cluster(
    kubernetes: Kubernetes, folder: Path, text: str, space: str, variant: str = "debian13", more: str = ""
) -> Iterator[Site]:
    """The cluster of a file with `text`, which says all but `variant` and `kubernetes`, with a user.

    `more` are further lines of `kubernetes`.
    """
    made = volumes(folder / "volumes")
    for one in made:
        one["metadata"]["name"] += f"-{space}"
        one["spec"]["claimRef"]["namespace"] = space
        # A folder of this machine is all of these.
        one["spec"]["accessModes"] = ["ReadWriteOnce", "ReadWriteMany"]
    with registry(folder, (), HOST) as host:
        jail = f"{host}/cellblock/jail:{variant}"
        push(jail_image(kubernetes, variant), f"docker://{jail}")
        kubernetes.apply(*made)
        path = folder / "cluster.yaml"
        init = own_name("jail-init", init_variant(variant))
        place = _PLACE.format(space=space, jail=jail, jail_init=init, repository=REPOSITORY)
        path.write_text(f"variant: {variant}\n{text}{place}{more}")
        render_to(path, folder / "rendered")
        older = older_folder(folder / "rendered", folder / "older")
        kubernetes("apply", f"--filename={older}/namespace.yaml", f"--filename={older}/secrets.yaml")
        kubernetes("apply", f"--kustomize={older}")
        site = Site(kubernetes, space, folder)
        for name in ("login", "controller"):
            kubernetes("rollout", "status", f"--namespace={space}", "--timeout=4m", f"statefulset/{name}")
        site.jail("sh", "-c", ENSURE_SCRIPT, PROOF_USER, user="root")
        site.until("the user", lambda: site.takes_jobs_of_the_user("accounting:" in text))
        try:
            yield site
        finally:
            _end(kubernetes, space, made)


def _end(kubernetes: Kubernetes, space: str, volumes_made: Sequence[dict[str, object]]) -> None:
    """Remove the cluster, without the time that its jobs would have."""
    kubernetes.run("delete", "statefulsets,deployments,jobs", "--all", f"--namespace={space}", "--wait=false")
    kubernetes.run(
        "delete", "pods", "--all", f"--namespace={space}", "--grace-period=0", "--force", "--wait=false"
    )
    kubernetes.run("delete", "namespace", space, "--timeout=2m")
    for one in volumes_made:
        kubernetes.run("delete", f"persistentvolume/{one['metadata']['name']}", "--wait=false")  # type: ignore[index]
