# SPDX-License-Identifier: Apache-2.0
"""Renders the templates of deploy/slurm, writes the results into a cluster's folder, and reads them again.

These are slurm.conf and other files of Slurm, the mount plans of nodes (jail.fstab), and health.conf. Each
mount has a folder: config/slurm is /etc/slurm of controller and login node (slurmctld hands its .conf files
to the workers); config/worker, config/login and config/accounting are /etc/cellblock there.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import jinja2

from cellblock import paths
from cellblock.cluster.configuration.slurm_features import SlurmFeatures
from cellblock.cluster.configuration.template_facts import ClusterFacts, Described
from cellblock.cluster.definition.external_database import read_authorities
from cellblock.cluster.definition.site_lines import with_lines
from cellblock.cluster.facts.host import CgroupMode
from cellblock.errors import CellblockError
from cellblock.files import durable

DATABASE_CA = "database-ca.pem"
"""Beside slurmdbd.conf: whom to trust that it is the site's database."""

# Output below config/ -> template below deploy/slurm, whose `role` is the output's folder.
TEMPLATES = {
    "slurm/slurm.conf": "slurm.conf.j2",
    "slurm/cgroup.conf": "cgroup.conf.j2",
    "slurm/gres.conf": "gres.conf.j2",
    "slurm/plugstack.conf": "plugstack.conf.j2",
    "slurm/topology.conf": "topology.conf.j2",
    "slurm/topology.yaml": "topology.yaml.j2",
    "accounting/slurmdbd.conf": "slurmdbd.conf.j2",
    "slurm/job_submit.lua": "job_submit.lua",
    "slurm/jobcomp.lua": "jobcomp.lua",
    "worker/jail.fstab": "jail.fstab.j2",
    "login/jail.fstab": "jail.fstab.j2",
    "worker/health.conf": "health.conf.j2",
    "slurm/health-active.conf": "health-active.conf.j2",
}


@functools.cache
def _environment(templates: Path) -> jinja2.Environment:
    """Of a folder of templates: each is compiled once, and again when it has changed."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
    )


def render(
    spec: Described, cluster: ClusterFacts, cgroup: CgroupMode, templates: Path | None = None
) -> dict[str, str]:
    """Path below config/ -> text. `cgroup` is as `cgroup_for` says. Raises CellblockError."""
    environment = _environment(templates or paths.PROJECT / "deploy" / "slurm")
    context = {
        "cluster": cluster,
        "slurm": SlurmFeatures(spec.variant.release, spec.variant.plugin_dir),
        "cgroup": cgroup,
    }
    texts = {}
    extra: Mapping[str, str] = {str(file): lines for file, lines in spec.file.slurm.extra.items()}
    for target, source in TEMPLATES.items():
        try:
            role = target.partition("/")[0]
            text = environment.get_template(source).render(context, role=role)
        except jinja2.TemplateError as error:
            raise CellblockError(
                f"deploy/slurm/{source}: {error}", hint=f"templates know: {', '.join(context)}"
            ) from error
        if text.strip():
            texts[target] = with_lines(text, extra.get(target.partition("/")[2], ""))
    database = spec.file.accounting.external if spec.file.accounting else None
    if database and database.tls:
        texts[f"accounting/{DATABASE_CA}"] = read_authorities(database.tls)
    return texts


def read(folder: Path) -> dict[str, str]:
    """What `write` wrote to `folder`; nothing when it is not there."""
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def write(folder: Path, texts: Mapping[str, str]) -> None:
    """Make `folder` hold `texts` and nothing else: owned by root and readable by all, as the jail demands.

    Files are replaced by rename, so that readers see the old or the new one; folders stay, for they are
    mounted in containers that run.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.parent.chmod(0o755)
            durable.write(path, text, mode=0o644)
        for path in sorted(folder.rglob("*")):
            if path.is_file() and str(path.relative_to(folder)) not in texts:
                path.unlink()
    except OSError as error:
        raise CellblockError(
            f"{error.filename or folder}: cannot be written: {error.strerror}",
            hint="make room, or set CELLBLOCK_STATE to a folder that can be written",
        ) from error
