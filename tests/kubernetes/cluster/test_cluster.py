# SPDX-License-Identifier: Apache-2.0
"""docs/kubernetes.md on a real Kubernetes of two nodes: from an empty namespace to jobs, and its changes."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.documented import blocks_for
from tests.kubernetes.helpers.page_cluster import PAGE, TEST, USER, File, PageCluster

pytestmark = pytest.mark.integration

_SCALINGS = int(os.environ.get("CELLBLOCK_SCALINGS", "1"))


def test_the_page_leads_to_a_job_over_two_nodes(cluster: PageCluster) -> None:
    assert TEST == "test_the_page_leads_to_a_job_over_two_nodes"
    *_, job, change = blocks_for(PAGE, TEST)
    assert f"--user {USER}" in job.lines[1]
    # The 1.20 of the tests numbers pods from 0.
    assert sorted(cluster.type(job.lines[1]).split()) == ["cpu-0", "cpu-1"]
    cluster.until("two idle nodes", cluster.serves)
    _applied_again_changes_nothing(cluster)
    secrets = cluster.secrets()
    path = cluster.folder / "cluster.yaml"
    path.write_text(path.read_text().replace("count: 2", "count: 3"))
    again, diff, apply_again = change.lines
    cluster.type(again)
    assert cluster.secrets() == secrets
    shown = cluster.type(diff)
    assert "replicas: 3" in shown
    cluster.type(apply_again)
    cluster.until("a third node", lambda: cluster.serves("cpu-0", "cpu-1", "cpu-2"))
    # Other files' tests apply the file again.
    cluster.change(lambda file: file["node_sets"][0].update(count=2))
    cluster.until("two nodes", cluster.serves)


def _applied_again_changes_nothing(cluster: PageCluster) -> None:
    changed = [
        line
        for line in cluster.type("kubectl apply -k manifests").splitlines()
        if not line.endswith(" unchanged")
    ]
    assert changed == []
    assert cluster.type("kubectl diff -k manifests") == ""


def test_scaling_loses_no_job_and_drains_the_nodes_that_go(cluster: PageCluster) -> None:
    for _ in range(_SCALINGS):
        _scale_to_three_and_to_one(cluster)
    cluster.type("kubectl -n slurm scale statefulset/cpu --replicas=2")
    cluster.until("two nodes", cluster.serves)


def _scale_to_three_and_to_one(cluster: PageCluster) -> None:
    cluster.type("kubectl -n slurm scale statefulset/cpu --replicas=3")
    cluster.until("three nodes", lambda: cluster.serves("cpu-0", "cpu-1", "cpu-2"))
    jobs = [cluster.submit_as("sleep 12", f"--nodelist=cpu-{number}", "--exclusive") for number in range(3)]
    cluster.until("running jobs", lambda: all(map(cluster.runs, jobs)))
    cluster.type("kubectl -n slurm scale statefulset/cpu --replicas=1")
    cluster.until("draining nodes", lambda: _those_that(cluster, "drng") == {"cpu-1", "cpu-2"})
    later = cluster.submit_as("true")
    cluster.until("one node", lambda: cluster.nodes().keys() == {"cpu-0"})
    cluster.until("the jobs", lambda: all(cluster.state(job) == "COMPLETED|0" for job in (*jobs, later)))
    assert cluster.slurm("sacct", "-n", "-X", "-P", "-j", later, "-o", "NodeList").strip() == "cpu-0"


def _those_that(cluster: PageCluster, state: str) -> set[str]:
    return {name for name, found in cluster.nodes().items() if found == state}


def test_a_changed_configuration_is_taken_and_a_bad_one_is_not(cluster: PageCluster) -> None:
    def limit() -> str:
        shown = cluster.slurm("scontrol", "show", "config")
        (line,) = [each for each in shown.splitlines() if each.startswith("MaxArraySize")]
        return line.split("=")[1].strip()

    def told(what: str) -> bool:
        events = cluster.kubernetes.get("events", "--namespace=slurm")["items"]
        refusals = [event["message"] for event in events if "configuration is not in use" in event["message"]]
        return any(what in message for message in refusals)

    before = cluster.folder.joinpath("cluster.yaml").read_text()
    started = cluster.pod("controller-0")["status"]["startTime"]

    def change(lines: str) -> None:
        def edit(file: File) -> None:
            file["slurm"]["extra"]["slurm.conf"] += f"\n{lines}"

        cluster.folder.joinpath("cluster.yaml").write_text(before)
        cluster.change(edit)
        # kubelet looks at ConfigMaps once a minute, and when a pod changes.
        cluster.type(f"kubectl -n slurm annotate --overwrite pod controller-0 tests/change={len(lines)}")

    change("MaxArraySize=5001")
    cluster.until("the new configuration", lambda: limit() == "5001", 150)
    change("MaxArraySize=lots")
    cluster.until("an event that says so", lambda: told("MaxArraySize"), 150)
    assert limit() == "5001"
    assert _refusals(cluster) > 0, "the metric of the alert"
    cluster.until("the login node to have heard of it", lambda: "MaxArraySize" in login_log(cluster), 150)
    assert cluster.run_as("squeue", "--noheader", "--format=%i") == "", "commands go on with the old one"
    pod = cluster.pod("controller-0")["status"]
    assert pod["startTime"] == started
    assert {one["restartCount"] for one in pod["containerStatuses"]} == {0}
    cluster.folder.joinpath("cluster.yaml").write_text(before)
    cluster.change(lambda _: None)


def login_log(cluster: PageCluster) -> str:
    """What the first login node's container has logged."""
    return cluster.kubernetes("logs", "login-0", f"--namespace={cluster.space}")


def _refusals(cluster: PageCluster) -> float:
    """What kubelet counts of the probe that tells them."""
    where = f"/api/v1/nodes/{cluster.machine('controller-0')}/proxy/metrics/probes"
    wanted = ('namespace="slurm"', 'container="slurmctld"', 'probe_type="Liveness"', 'result="failed"')
    return sum(
        float(line.rpartition(" ")[2])
        for line in cluster.kubernetes("get", f"--raw={where}").splitlines()
        if line.startswith("prober_probe_total{") and all(each in line for each in wanted)
    )


def test_login_is_reached_over_its_service(cluster: PageCluster) -> None:
    scan = subprocess.run(
        ["ssh-keyscan", "-T", "10", "-t", "ed25519", cluster.login_address()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ssh-ed25519" in scan.stdout, scan.stderr
