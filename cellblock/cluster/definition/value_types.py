# SPDX-License-Identifier: Apache-2.0
"""Checks single values of the cluster file: names, words of Slurm's files, sizes, times.

Types for objects of Kubernetes are in kubernetes_value_types.py.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from cellblock.cluster.definition.amounts import mebibytes, slurm_time
from cellblock.cluster.definition.names import check_name
from cellblock.errors import UsageError

# Names of node sets and partitions: parts of host names (RFC 1123), of lists of nodes and of files.
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?")
# Names that Slurm gives a meaning of its own where a partition or a set of nodes is named (slurm.conf(5)),
# and the hosts of the other roles.
_RESERVED = {"all", "default", "controller", "login", "accounting", "database", "rest", "metrics"}
# A word in a line of slurm.conf: nothing that ends the value, the line or the file.
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/+-]{0,63}")
# slurmdbd.conf(5), PurgeJobAfter and its like.
_PERIOD = re.compile(r"[1-9]\d{0,4}(hours|days|months)")


def _named(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(
            f"'{value}' is no name here: lower-case letters, digits and '-', a letter first, at most 30"
        )
    if value in _RESERVED:
        raise ValueError(f"'{value}' has a meaning of its own; choose another name")
    return value


def _image_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(f"'{value}' is no image's name: lower-case letters, digits and '-', at most 30")
    return value


def _cluster_name(value: str) -> str:
    try:
        check_name(value)
    except UsageError as error:
        raise ValueError(error.message) from error
    return value


def _word(value: str) -> str:
    if not _WORD.fullmatch(value):
        raise ValueError(f"Slurm does not take '{value}' here: only letters, digits and _ . : / + -")
    return value


def _size(value: str) -> str:
    mebibytes(value)
    return value


def _time(value: str) -> str:
    slurm_time(value)
    return value


def _period(value: str) -> str:
    if not _PERIOD.fullmatch(value):
        raise ValueError(f"'{value}' is no period: a number and hours, days or months, as in 12months")
    return value


Name = Annotated[str, AfterValidator(_named)]
ImageName = Annotated[str, AfterValidator(_image_name)]
ClusterName = Annotated[str, AfterValidator(_cluster_name)]
Word = Annotated[str, AfterValidator(_word)]
Size = Annotated[str, AfterValidator(_size)]
Time = Annotated[str, AfterValidator(_time)]
Period = Annotated[str, AfterValidator(_period)]
