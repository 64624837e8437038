# SPDX-License-Identifier: Apache-2.0
"""Checks the lines that a site adds to Slurm's files, and puts them beside or in place of Cellblock's.

A file of Slurm's has lines of KEY=VALUE; `#` begins a comment, and a backslash at the end joins the next line
(slurm.conf(5)). A site cannot set what Cellblock's parts depend on; it can set everything else.
"""

from __future__ import annotations

import re

# Keys that are Cellblock's -> what to use instead. Lower case, as Slurm takes them in any.
_OWN = {
    "slurm.conf": {
        "accountingstorageenforce": "the field accounting.enforce",
        "accountingstoragehost": "the field accounting.database",
        "accountingstorageport": "the field accounting.database",
        "accountingstoragetype": "the field accounting",
        "authaltparameters": "the field rest",
        "authalttypes": "the field rest",
        "authinfo": "nothing: who vouches for users, and by which key, is the images' matter",
        "authtype": "the field auth",
        "bcastparameters": "nothing: it is the one folder that jobs and slurmd share",
        "clustername": "the field name",
        "credtype": "the field auth",
        "healthcheckinterval": "the field health.interval",
        "healthchecknodestate": "the field health",
        "healthcheckprogram": "the field health",
        "grestypes": "the field node_sets[].gres",
        "jobsubmitplugins": "nothing: the plugin keeps system users of the jail from submitting",
        "nodename": "the field node_sets",
        "nodeset": "the field node_sets",
        "partitionname": "the field partitions",
        "plugstackconfig": "nothing: plugstack.conf puts jobs into the jail",
        "prologflags": "nothing: sessions join the job's container",
        "proctracktype": "nothing: it follows the cgroups that the machine has",
        "slurmctldhost": "the field controller.replicas",
        "slurmctldparameters": "nothing: nodes fetch their configuration, and triggers lead out of the jail",
        "slurmctldpidfile": "nothing: a path of the image",
        "slurmctldport": "nothing: the other containers ask there",
        "slurmctldprimaryonprog": "nothing: of two controllers it tells which one acts",
        "slurmdpidfile": "nothing: a path of the image",
        "slurmdport": "nothing: below 1024, so that no user takes it",
        "slurmdspooldir": "nothing: a path of the image",
        "slurmduser": "nothing: a user of the image",
        "slurmuser": "nothing: a user of the image",
        "statesavelocation": "nothing: a path of the image",
    },
    "gres.conf": {"name": "the field node_sets[].gres", "nodename": "the field node_sets[].gres"},
    "cgroup.conf": {"cgroupplugin": "nothing: it follows the cgroups that the machine has"},
}
POWER_KEYS = {
    *("resumeprogram", "resumefailprogram", "resumetimeout", "resumerate"),
    *("suspendprogram", "suspendtime", "suspendtimeout", "suspendrate"),
    *("suspendexcnodes", "suspendexcparts", "suspendexcstates"),
}
"""Keys of slurm.conf that are Cellblock's where node sets are on demand."""
_INCLUDE = re.compile(r"include\b", re.IGNORECASE)
_KEY = re.compile(r"\s*([A-Za-z][A-Za-z0-9_]*)\s*=")


def check_lines(file: str, text: str) -> None:
    """Raise ValueError, naming the line, when `text` cannot stand in `file`."""
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{file}, line {number}"
        bare = line.split("#", 1)[0].strip()
        if not line.replace("\t", " ").isprintable():
            raise ValueError(f"{where}: holds a character that cannot be printed")
        if line.rstrip().endswith("\\"):
            raise ValueError(f"{where}: ends with a backslash; write the line as one")
        if not bare:
            continue
        if _INCLUDE.match(bare):
            raise ValueError(f"{where}: include does not reach the nodes; write the lines themselves")
        found = _KEY.match(bare)
        if not found:
            raise ValueError(f"{where}: '{bare}' is no KEY=VALUE")
        instead = _OWN[file].get(found[1].lower())
        if instead:
            raise ValueError(f"{where}: {found[1]} is set by Cellblock; use {instead}")


def with_lines(text: str, extra: str) -> str:
    """`text` with the lines `extra` at its end, without those lines of `text` whose keys `extra` sets."""
    if not extra.strip():
        return text
    theirs = set(keys(extra))
    kept = [line for line in text.splitlines() if not theirs & set(keys(line))]
    return "\n".join([*kept, "", "# Of the cluster file: slurm.extra.", *extra.strip().splitlines(), ""])


def keys(text: str) -> list[str]:
    """The keys that the lines of `text` set, in lower case."""
    matches = (_KEY.match(line) for line in text.splitlines())
    return [found[1].lower() for found in matches if found]
