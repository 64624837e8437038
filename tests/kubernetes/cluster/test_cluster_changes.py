# SPDX-License-Identifier: Apache-2.0
"""Images of the page's cluster and its jail change while jobs run; the jail is backed up and restored."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile

import pytest

from cellblock.bench.harness.registry import push
from tests.kubernetes.helpers.page_cluster import USER, File, PageCluster
from tests.kubernetes.helpers.small_cluster import jail_image, own_name

pytestmark = pytest.mark.integration

_MISSING = "localhost/cellblock/missing:1"


@pytest.fixture(autouse=True)
def as_before(cluster: PageCluster) -> None:
    cluster.until("two idle nodes", cluster.serves)


def use(cluster: PageCluster, **images: str) -> None:
    """Name images in the cluster file."""

    def edit(file: File) -> None:
        file["kubernetes"]["images"] |= images

    cluster.change(edit)


def waits_for_image(cluster: PageCluster, pod: str) -> bool:
    """Whether the image of a pod's container cannot be had."""
    status = cluster.pod(pod)["status"]
    both = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    reasons = {one["state"].get("waiting", {}).get("reason") for one in both}
    return bool(reasons & {"ErrImagePull", "ImagePullBackOff"})


def test_a_bad_image_of_the_nodes_stops_at_the_first_and_a_good_one_loses_no_job(
    cluster: PageCluster,
) -> None:
    jobs = [cluster.submit_as("sleep 15", f"--nodelist=cpu-{number}") for number in range(2)]
    cluster.until("running jobs", lambda: all(map(cluster.runs, jobs)))
    first = cluster.pod("cpu-0")["metadata"]["uid"]
    use(cluster, worker=_MISSING)
    cluster.until("a pod without an image", lambda: waits_for_image(cluster, "cpu-1"))
    cluster.until("the jobs", lambda: all(cluster.state(job) == "COMPLETED|0" for job in jobs))
    assert cluster.pod("cpu-0")["metadata"]["uid"] == first
    assert cluster.serves("cpu-0")
    good = cluster.own_image("worker", "next")
    job = cluster.submit_as("sleep 15")
    cluster.until("a running job", lambda: cluster.runs(job))
    use(cluster, worker=good)

    def rolled() -> bool:
        pods = [cluster.pod(f"cpu-{number}") for number in range(2)]
        return all(pod["spec"]["containers"][0]["image"] == good for pod in pods) and cluster.serves()

    cluster.until("two nodes of the new image", rolled, 180)
    assert cluster.state(job) == "COMPLETED|0"


def test_a_bad_image_of_the_controller_ends_no_job_and_is_corrected_by_the_next_apply(
    cluster: PageCluster,
) -> None:
    job = cluster.submit_as("sleep 20")
    cluster.until("a running job", lambda: cluster.runs(job))
    use(cluster, controller=_MISSING)
    cluster.until("a pod without an image", lambda: waits_for_image(cluster, "controller-0"))
    use(cluster, controller=own_name("controller"))
    cluster.until("the controller", lambda: cluster.is_ready("controller-0"))
    cluster.until("the job", lambda: cluster.state(job) == "COMPLETED|0")


def newer_jail(cluster: PageCluster) -> str:
    """An image of the jail with a file more, in the registry."""
    source = jail_image(cluster.kubernetes)
    layout = cluster.folder / "newer"
    subprocess.run(["skopeo", "copy", "--quiet", source, f"oci:{layout}:newer"], check=True)
    # `umoci insert` of Debian 12 leaves the end of the tar out.
    layer = cluster.folder / "newer.tar"
    with tarfile.open(layer, "w") as archive:
        note = b"of the newer image\n"
        entry = tarfile.TarInfo("usr/share/newer")
        entry.size = len(note)
        archive.addfile(entry, io.BytesIO(note))
    add = ["umoci", "raw", "add-layer", "--image", f"{layout}:newer", str(layer)]
    subprocess.run(add, check=True, capture_output=True)
    jail = f"{cluster.host}/cellblock/jail:newer"
    push(f"oci:{layout}:newer", f"docker://{jail}")
    shutil.rmtree(layout)
    return jail


def test_the_jail_is_upgraded_under_a_running_job(cluster: PageCluster) -> None:
    script = "until [ -e /usr/share/newer ]; do sleep 0.5; done; cp /usr/share/newer ~/seen"
    job = cluster.submit_as(script)
    cluster.until("a running job", lambda: cluster.runs(job))
    use(cluster, jail=newer_jail(cluster))
    cluster.until("the job", lambda: cluster.state(job) == "COMPLETED|0", 180)
    assert cluster.run_as("sh", "-c", "cat ~/seen") == "of the newer image\n"
    cluster.until("two nodes, whose pods have gone on", cluster.serves)


def test_what_the_cron_job_backs_up_is_restored_under_a_running_job(cluster: PageCluster) -> None:
    volume = cluster.folder / "volumes/jail"
    environment = {**os.environ, "RESTIC_PASSWORD": "of the tests"}
    restic = ["restic", "--repo", str(volume / "repository")]
    subprocess.run([*restic, "init"], env=environment, check=True, capture_output=True)
    secret = ("generic", "jail-backup", "--from-literal=password=of the tests")
    cluster.kubernetes("create", "secret", *secret, "--namespace=slurm")

    def edit(file: File) -> None:
        file["kubernetes"]["jail"]["backup"] = {"repository": "/mnt/jail/repository"}

    cluster.change(edit)
    cluster.run_as("sh", "-c", "echo first >~/notes")
    job = cluster.submit_as("sleep 20")
    cluster.type("kubectl -n slurm create job --from=cronjob/jail-backup by-hand")
    cluster.kubernetes.succeeds("by-hand", "slurm")
    cluster.run_as("sh", "-c", "echo second >~/notes")
    render = "python3 build.py render kubernetes restore --namespace slurm --repository /mnt/jail/repository"
    what = f"--path /home/{USER}/notes --replace --image {own_name('jail-init')} --output restore"
    cluster.type(f"{render} {what}")
    cluster.type("kubectl apply -f restore/jail-restore.yaml")
    (restore,) = [
        one["metadata"]["name"]
        for one in cluster.kubernetes.get("jobs", "--namespace=slurm")["items"]
        if one["metadata"]["name"].startswith("jail-restore")
    ]
    cluster.kubernetes.succeeds(restore, "slurm")
    assert cluster.run_as("sh", "-c", "cat ~/notes") == "first\n"
    cluster.until("the job", lambda: cluster.state(job) == "COMPLETED|0")
