# SPDX-License-Identifier: Apache-2.0
"""What a cluster file may say, and what is said of one that it may not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from cellblock.cluster import ClusterSpec
from cellblock.cluster.configuration import config_files, template_facts
from cellblock.cluster.definition.amounts import mebibytes, slurm_time
from cellblock.cluster.definition.cluster_file import (
    Accounting,
    ClusterFile,
    Purge,
    load_cluster_file,
)
from cellblock.cluster.engine.container_specs import Container, plan
from cellblock.cluster.up_request import UpRequest, cluster_file, cluster_spec
from cellblock.errors import DefinitionError, UsageError
from tests import documented

Load = Callable[[str], ClusterFile]
Make = Callable[..., ClusterSpec]

WHOLE = """\
name: site
variant: debian13
jail: {image: jail-devel, root: operator, level: pid}
accounting: {enforce: [associations, limits], account: null}
login: {ssh_port: 2200}
node_sets:
  - {name: cpu, count: 2, features: [fast, "intel:6"]}
  - {name: gpu, count: 1, gres: {"gpu:a100": 4, fpga: 1}, resources: {cpu: 8, memory: 16Gi}, weight: 10}
partitions:
  - {name: main, default: true, max_time: 7d}
  - {name: big, node_sets: [gpu], priority: 5, state: drain, options: {OverSubscribe: "FORCE:2"}}
slurm:
  extra:
    slurm.conf: |
      # Ours.
      MaxArraySize=5000
      killonbadexit=0
"""

EXTERNAL = "accounting:\n  database:\n"
TRUSTED = "    password_from: /etc/password\n    tls: {ca_from: /etc/ca.pem}\n"


def test_the_default_file_is_the_default_cluster_with_accounting() -> None:
    """An own file has the parts that it names and no others."""
    assert load_cluster_file() == ClusterFile(accounting=Accounting())
    assert ClusterFile().accounting is None


def test_a_part_can_be_left_out() -> None:
    assert cluster_file(UpRequest(without=("accounting",))).accounting is None
    with pytest.raises(UsageError, match="cannot be without 'login'") as refused:
        cluster_file(UpRequest(without=("login",)))
    assert refused.value.hint == "use --without with one of: accounting, rest, metrics"


def test_names_of_nodes(load: Load) -> None:
    file = load(WHOLE)
    assert file.nodes == ("cpu-1", "cpu-2", "gpu-1")
    assert file.default_nodes == file.nodes


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        ("nmae: x\n", ":1: nmae", "did you mean 'name'"),
        ("- name\n", "", "holds no keys"),
        ("name: X_1\n", ":1: name", "lower-case letters, digits and '-'"),
        ("node_sets:\n  - {name: a, count: '2'}\n", ":2: node_sets.0.count", "must be a whole number"),
        ("node_sets:\n  - {name: a, count: 0}\n", ":2: node_sets.0.count", "greater than or equal to 1"),
        ("node_sets: []\n", ":1: node_sets", "at least 1 item"),
        ("node_sets: [{name: all}]\n", ":1: node_sets.0.name", "a meaning of its own"),
        ("node_sets: [{name: login}]\n", ":1: node_sets.0.name", "a meaning of its own"),
        ("node_sets:\n  - name: a\n  - name: a\n", ":3: node_sets.1.name", "'a' stands twice"),
        ("node_sets: [{name: a, features: ['x y']}]\n", ":1: node_sets.0.features.0", "Slurm does not take"),
        (
            "node_sets: [{name: a, features: ['x\\nNodeName=b']}]\n",
            ":1: node_sets.0.features.0",
            "Slurm does not take",
        ),
        ("node_sets: [{name: a, gres: {'GPU': 1}}]\n", ":1: node_sets.0", "'GPU' is no resource"),
        ("node_sets: [{name: a, gres: {gpu: 0}}]\n", ":1: node_sets.0", "not between 1 and 4096"),
        (
            "node_sets: [{name: a, resources: {memory: 8}}]\n",
            ":1: node_sets.0.resources.memory",
            "must be text",
        ),
        ("node_sets: [{name: a, resources: {memory: 8GB}}]\n", ":1: node_sets.0.resources.memory", "no size"),
        ("accounting: {purge: {jobs: 3w}}\n", ":1: accounting.purge.jobs", "no period"),
        ("accounting: {purge: {steps: 0days}}\n", ":1: accounting.purge.steps", "no period"),
        ("accounting: {purge: {job: 3days}}\n", ":1: accounting.purge.job", "did you mean 'jobs'"),
        ("accounting: {database: own}\n", ":1: accounting.database", "must be `embedded`, or a mapping"),
        ("accounting: {database: {}}\n", ":1: accounting.database.host", "missing: The name or address"),
        (
            f"{EXTERNAL}    host: db\n    password_from: /etc/password\n",
            ":2: accounting.database.tls",
            "missing: Whom to trust, `{ca_from: FILE}`; `null`: whoever is between reads along",
        ),
        (f"{EXTERNAL}    hots: db\n{TRUSTED}", ":3: accounting.database.hots", "did you mean 'host'"),
        (f"{EXTERNAL}    host: db;x\n{TRUSTED}", ":3: accounting.database.host", "no name or address"),
        (f"{EXTERNAL}    host: db\n    port: 0\n{TRUSTED}", ":4: accounting.database.port", "greater than"),
        (f"{EXTERNAL}    host: db\n    user: a b\n{TRUSTED}", ":4: accounting.database.user", "letters"),
        (
            f"{EXTERNAL}    host: db\n    password_from: pass\n    tls: null\n",
            ":4: accounting.database.password_from",
            "no absolute path",
        ),
        (
            f"{EXTERNAL}    host: db\n    password_from: /etc/password\n    tls: {{}}\n",
            ":5: accounting.database.tls.ca_from",
            "missing: The file, on this machine, of the authorities",
        ),
        (
            f"{EXTERNAL}    host: db\n    password_from: /etc/password\n    tls: true\n",
            ":5: accounting.database.tls",
            "{ca_from: FILE}; or null",
        ),
        ("partitions: [{name: p}]\n", ":1: partitions", "`default: true`"),
        (
            "partitions:\n  - {name: p, default: true}\n  - {name: q, default: true}\n",
            ":3: partitions.1.default",
            "another partition is the default one",
        ),
        (
            "partitions:\n  - {name: p, default: true, node_sets: [wroker]}\n",
            ":2: partitions.0.node_sets.0",
            "did you mean 'worker'",
        ),
        (
            "partitions: [{name: p, default: true, max_time: 7}]\n",
            ":1: partitions.0.max_time",
            "must be text",
        ),
        ("partitions: [{name: p, default: true, max_time: week}]\n", ":1: partitions.0.max_time", "no time"),
        (
            "partitions: [{name: p, default: true, options: {MaxTime: '1'}}]\n",
            ":1: partitions.0",
            "field max_time",
        ),
        (
            "partitions: [{name: p, default: true, options: {X: 'a b'}}]\n",
            ":1: partitions.0.options.X",
            "Slurm does not take",
        ),
        ("slurm: {extra: {slurm.conf: 'SlurmUser=root'}}\n", ":1: slurm", "SlurmUser is set by Cellblock"),
        (
            'slurm: {extra: {slurm.conf: "A=1\\npartitionname=x"}}\n',
            ":1: slurm",
            "line 2: partitionname.*partitions",
        ),
        ("slurm: {extra: {slurm.conf: 'Include /etc/x'}}\n", ":1: slurm", "does not reach the nodes"),
        ('slurm: {extra: {slurm.conf: "A=1 \\\\\\nB=2"}}\n', ":1: slurm", "backslash"),
        ("slurm: {extra: {slurm.conf: 'just words'}}\n", ":1: slurm", "no KEY=VALUE"),
        ('slurm: {extra: {slurm.conf: "A=1\\x1b"}}\n', ":1: slurm", "cannot be printed"),
        ("slurm: {extra: {passwd: 'x=1'}}\n", ":1: slurm.extra.passwd", "slurm.conf"),
        ("jail: {root: admin}\n", ":1: jail.root", "nobody"),
        ("accounting: {enforce: [limit]}\n", ":1: accounting.enforce.0", "limits"),
        ("login: {ssh_port: 70000}\n", ":1: login.ssh_port", "65535"),
        ("rest: {replicas: 0}\n", ":1: rest.replicas", "greater than or equal to 1"),
        ("rest: {port: 2221, replicas: 2}\n", ":1: rest.port", "2222 is the port of login.ssh_port"),
        ("slurm: {extra: {slurm.conf: 'AuthAltTypes=auth/jwt'}}\n", ":1: slurm", "use the field rest"),
        ("slurm: {extra: {slurm.conf: 'AuthInfo=use_client_ids'}}\n", ":1: slurm", "AuthInfo is set by"),
    ],
)
def test_a_mistake_is_named_with_line_and_key(load: Load, text: str, where: str, says: str) -> None:
    with pytest.raises(DefinitionError, match=says) as caught:
        load(text)
    assert f"cluster.yaml{where}" in caught.value.message


def test_options_take_the_place_of_what_the_file_says(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(WHOLE)
    request = UpRequest(
        name="mine", ssh_port=2300, jail_root="nobody", jail="jail", variant="debian14", file=path
    )
    file = cluster_file(request)
    assert (file.name, file.variant, file.login.ssh_port) == ("mine", "debian14", 2300)
    assert (file.jail.root, file.jail.image, file.jail.level) == ("nobody", "jail", "pid")
    with pytest.raises(UsageError, match="the cluster has 2 node sets"):
        cluster_file(UpRequest(workers=3, file=path))
    assert cluster_file(UpRequest(workers=3)).nodes == ("worker-1", "worker-2", "worker-3")


def rendered(spec: ClusterSpec) -> dict[str, str]:
    return config_files.render(spec, template_facts.facts(spec, cpus=2, memory_mb=20000), "disabled")


def test_what_the_file_says_stands_in_slurms_files(load: Load, spec: Make) -> None:
    texts = rendered(spec(file=load(WHOLE)))
    lines = texts["slurm/slurm.conf"].splitlines()
    for line in (
        "ClusterName=site",
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageEnforce=associations,limits",
        "AccountingStorageTRES=gres/gpu,gres/fpga",
        "GresTypes=gpu,fpga",
        "SlurmdParameters=config_overrides",
        "NodeSet=cpu Feature=cpu",
        "NodeSet=gpu Feature=gpu",
        "PartitionName=main Nodes=ALL Default=YES MaxTime=7-00:00:00 State=UP",
        "PartitionName=big Nodes=gpu Default=NO MaxTime=INFINITE State=DRAIN "
        "PriorityTier=5 OverSubscribe=FORCE:2",
        "MaxArraySize=5000",
        "killonbadexit=0",
    ):
        assert lines.count(line) == 1, line
    # A line of the file's own takes the place of the default.
    assert "KillOnBadExit=1" not in lines
    assert [line for line in texts["slurm/gres.conf"].splitlines() if not line.startswith("#")] == [
        "NodeName=gpu-[1-1] Name=gpu Type=a100 File=/run/cellblock/gres/gpu-a100-[0-3]",
        "NodeName=gpu-[1-1] Name=fpga Count=1",
    ]
    assert "level=pid" in texts["slurm/plugstack.conf"]
    assert "StorageHost=database" in texts["accounting/slurmdbd.conf"]
    assert "StoragePass=" not in texts["accounting/slurmdbd.conf"]


def test_old_records_are_purged_and_archived_as_asked(load: Load, spec: Make) -> None:
    def lines(purge: str) -> list[str]:
        texts = rendered(spec(file=load(f"accounting: {{purge: {purge}}}\n")))
        found = texts["accounting/slurmdbd.conf"].splitlines()
        return [line for line in found if line.startswith(("Purge", "Archive"))]

    assert lines("{}") == ["ArchiveDir=/var/lib/slurm/archive"]
    assert lines("{jobs: 24months, transactions: 90days, suspensions: 48hours}") == [
        *("PurgeJobAfter=24months", "ArchiveJobs=yes", "PurgeSuspendAfter=48hours", "ArchiveSuspend=yes"),
        *("PurgeTXNAfter=90days", "ArchiveTXN=yes", "ArchiveDir=/var/lib/slurm/archive"),
    ]
    assert lines("{usage: 24months, archive: false}") == [
        *("PurgeUsageAfter=24months", "ArchiveDir=/var/lib/slurm/archive"),
    ]


def test_without_accounting_and_resources_there_are_no_files_for_them(spec: Make) -> None:
    texts = rendered(spec())
    assert "slurm/gres.conf" not in texts
    assert "accounting/slurmdbd.conf" not in texts
    assert "AccountingStorage" not in texts["slurm/slurm.conf"]


def containers(one: ClusterSpec, folder: Path) -> dict[str, Container]:
    facts = template_facts.facts(one, cpus=2, memory_mb=20000)
    return {each.hostname: each for each in plan(one, facts, folder, (), "disabled", 1000)}


def test_the_containers_of_accounting_have_what_they_need_and_no_more(
    load: Load, spec: Make, tmp_path: Path
) -> None:
    roles = ("controller", "worker", "login", "accounting", "database")
    made = containers(spec(file=load(WHOLE), images=dict.fromkeys(roles, "image")), tmp_path)
    assert set(made) == {"controller", "database", "accounting", "cpu-1", "cpu-2", "gpu-1", "login"}
    assert made["gpu-1"].environment["CELLBLOCK_NODE_CONF"] == (
        "CPUs=8 RealMemory=16384 Feature=gpu Weight=10 Gres=gpu:a100:4,fpga:1"
    )
    assert made["controller"].environment == {"CELLBLOCK_ACCOUNTING": "accounting:6819"}
    # The database has its own password, and neither munge's key nor the jail.
    database = made["database"]
    assert {mount.target for mount in database.mounts} == {"/run/secrets/cellblock", "/var/lib/mysql"}
    assert [mount.source for mount in database.mounts if mount.target.startswith("/run")] == [
        str(tmp_path / "secrets" / "database")
    ]
    for name in ("database", "accounting"):
        assert made[name].read_only
        assert not made[name].security_opt
        assert "SYS_ADMIN" not in made[name].cap_add


def test_each_user_is_associated_unless_the_file_says_otherwise(
    load: Load, spec: Make, tmp_path: Path
) -> None:
    roles = ("controller", "worker", "login", "accounting", "database")
    made = containers(spec(file=load("accounting: {}\n"), images=dict.fromkeys(roles, "image")), tmp_path)
    assert made["controller"].environment["CELLBLOCK_ACCOUNT"] == "users"


@pytest.mark.parametrize(
    ("release", "variant", "source"),
    [
        ("22.05", "debian12", "commands"),
        ("24.11", "debian13", "commands"),
        # Slurm 25.11 before 25.11.5 can end by its own endpoints.
        ("25.11", "ubuntu26.04", "commands"),
        ("26.05", "debian14", "openmetrics"),
    ],
)
def test_the_exporter_has_a_key_only_where_commands_ask(
    spec: Make, load: Load, tmp_path: Path, release: str, variant: str, source: str
) -> None:
    roles = ("controller", "worker", "login", "metrics")
    file = load("metrics: {port: 9400, interval: 60}\n")
    made = containers(spec(release, variant, file=file, images=dict.fromkeys(roles, "image")), tmp_path)[
        "metrics"
    ]
    assert made.ports == {"9341/tcp": ("127.0.0.1", 9400)}
    assert made.environment["CELLBLOCK_METRICS_SOURCE"] == source
    assert made.environment["CELLBLOCK_METRICS_INTERVAL"] == "60"
    assert made.read_only
    assert not any(mount.writable for mount in made.mounts)
    targets = {mount.target for mount in made.mounts}
    asking = {"/etc/slurm", "/run/secrets/cellblock", "/mnt/jail-etc"}
    assert targets == {"/mnt/jail-records"} | (asking if source == "commands" else set())


PAGES = ("cluster-file.md", "accounting.md", "rest.md", "metrics.md")


def test_what_the_pages_show_can_be_loaded(load: Load) -> None:
    this = "test_what_the_pages_show_can_be_loaded"
    shown = {page: documented.blocks_for(page, this) for page in PAGES}
    whole = load("\n".join(block.text for block in shown["cluster-file.md"]))
    assert whole.nodes == ("cpu-1", "cpu-2", "gpu-1")
    accounting, site, purge = shown["accounting.md"]
    external = load(site.text).accounting
    assert external
    assert external.external
    assert external.external.host == "db.example.org"
    assert load(accounting.text) == load("accounting: {}\n")
    assert load(purge.text).accounting == Accounting(
        purge=Purge(jobs="24months", steps="6months", events="24months")
    )
    (rest,) = shown["rest.md"]
    assert load(rest.text) == load("rest: {}\n")
    (metrics,) = shown["metrics.md"]
    assert load(metrics.text) == load("metrics: {}\n")


def test_a_file_and_its_schema_are_printed(tmp_path: Path) -> None:
    lines = documented.lines_for("cluster-file.md", "test_a_file_and_its_schema_are_printed")
    assert len(lines) == 2
    for line in lines:
        documented.type_line(line, tmp_path)
    assert load_cluster_file(tmp_path / "cluster.yaml") == load_cluster_file()
    assert json.loads((tmp_path / "cluster.schema.json").read_text())["properties"]["node_sets"]


@pytest.mark.parametrize(("size", "mib"), [("512Mi", 512), ("8Gi", 8192), ("1Ti", 1048576)])
def test_sizes(size: str, mib: int) -> None:
    assert mebibytes(size) == mib


@pytest.mark.parametrize(
    ("time", "slurms"),
    [
        ("90s", "0-00:01:30"),
        ("30m", "0-00:30:00"),
        ("36h", "1-12:00:00"),
        ("2w", "14-00:00:00"),
        ("unlimited", "INFINITE"),
    ],
)
def test_times(time: str, slurms: str) -> None:
    assert slurm_time(time) == slurms


def test_the_schema_describes_each_key() -> None:
    schema = ClusterFile.model_json_schema()
    models = [schema, *schema["$defs"].values()]
    for model in models:
        assert model["additionalProperties"] is False
        for name, key in model["properties"].items():
            # What says the same as the model has the model's.
            assert key.get("description") or "$ref" in key, name
    # What people write is JSON, too.
    assert json.loads(json.dumps(yaml.safe_load(WHOLE)))["name"] == "site"


def test_auth_slurm_takes_a_release_that_has_it(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("variant: debian12\nlogin: {ssh_port: 2200}\nauth: slurm\n")
    request = UpRequest(file=path)
    with pytest.raises(UsageError) as caught:
        cluster_spec(request, cluster_file(request))
    assert (
        f"{path}:3: auth: variant debian12 has Slurm 22.05, which has no auth/slurm" in caught.value.message
    )
    assert "`auth: munge`" in caught.value.hint
    path.write_text("variant: debian13\nauth: slurm\n")
    assert cluster_spec(request, cluster_file(request)).file.auth == "slurm"
