# SPDX-License-Identifier: Apache-2.0
"""Checks single values that end in objects of Kubernetes: names, labels, images, tolerations.

kubernetes_part.py uses these types. Those of the other parts of a cluster file are in value_types.py.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated

from pydantic import AfterValidator

from cellblock.cluster.definition.amounts import mebibytes, seconds

LABEL_KEY = r"(?P<key>([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)"
LABEL_VALUE = r"(?P<value>([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?)"
SUBDOMAIN = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
TOLERATION = rf"{LABEL_KEY}(?:={LABEL_VALUE})?(?::(?P<effect>{'|'.join(EFFECTS)}))?"

# RFC 1123.
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# HOST/PATH[:TAG][@DIGEST]; a host may have a port. No quotes, no spaces.
_REPOSITORY = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+"
_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_REFERENCE = re.compile(rf"{_REPOSITORY}(:{_TAG})?(@sha256:[0-9a-f]{{64}})?")
# A quantity of processors: 4, 0.5, 500m.
_CPU = re.compile(r"[1-9]\d{0,6}m|\d{1,4}(\.\d{1,3})?")
# A line of authorized_keys(5): a kind, the key, and a comment.
_SSH_KEY = re.compile(r"(ssh|ecdsa|sk)-[a-z0-9@.-]{1,60} [A-Za-z0-9+/=]{16,2000}( [^\x00-\x1f\x7f]{0,200})?")


def _dns_label(value: str) -> str:
    if not _LABEL.fullmatch(value):
        raise ValueError(
            f"'{value}' is no DNS label: lower-case letters, digits and '-', at most 63, "
            "with a letter or digit first and last"
        )
    return value


def _object_name(value: str) -> str:
    if len(value) > 253 or not re.fullmatch(SUBDOMAIN, value) or ".." in value:
        raise ValueError(
            f"'{value}' is no name of an object: lower-case letters, digits, '-' and '.', at most 253, "
            "with a letter or digit first and last"
        )
    return value


def _repository(value: str) -> str:
    if not re.fullmatch(_REPOSITORY, value):
        raise ValueError(f"'{value}' is no place in a registry: HOST/PATH, as `build.py push` took it")
    return value


def _tag(value: str) -> str:
    if not re.fullmatch(_TAG, value):
        raise ValueError(f"'{value}' is no tag: letters, digits, '_', '.' and '-', at most 128")
    return value


def _reference(value: str) -> str:
    if not _REFERENCE.fullmatch(value):
        raise ValueError(f"'{value}' is no image in a registry: HOST/PATH:TAG, or HOST/PATH@sha256:DIGEST")
    return value


def _toleration(value: str) -> str:
    if not re.fullmatch(TOLERATION, value):
        raise ValueError(
            f"'{value}' is no toleration: KEY[=VALUE][:EFFECT], as gpu=true:NoSchedule; "
            f"effects: {', '.join(EFFECTS)}"
        )
    return value


def _label_key(value: str) -> str:
    if not re.fullmatch(LABEL_KEY, value):
        raise ValueError(f"'{value}' is no key of a label, such as pool or topology.kubernetes.io/zone")
    return value


def _label_value(value: str) -> str:
    if not re.fullmatch(LABEL_VALUE, value):
        raise ValueError(f"'{value}' is no value of a label: letters, digits, '_', '.' and '-', at most 63")
    return value


def _annotation(value: str) -> str:
    if len(value) > 1000 or not value.isprintable():
        raise ValueError("is no value of an annotation: at most 1000 characters in one line")
    return value


def _cpu(value: str) -> str:
    if not _CPU.fullmatch(value) or not re.search("[1-9]", value):
        raise ValueError(f"'{value}' is no number of processors, such as 4, 0.5 or 500m; in quotes")
    return value


def _duration(value: str) -> str:
    if seconds(value) > 30 * 86400:
        raise ValueError(f"'{value}' is too long: at most 30d")
    return value


def _small(value: str) -> str:
    mebibytes(value)
    return value


def _network(value: str) -> str:
    try:
        return str(ipaddress.ip_network(value))
    except ValueError as error:
        raise ValueError(f"'{value}' is no network, such as 10.0.0.0/16: {error}") from error


def _ssh_key(value: str) -> str:
    if not _SSH_KEY.fullmatch(value):
        raise ValueError("is no public key: one line as in id_ed25519.pub, `ssh-ed25519 AAAA... COMMENT`")
    return value


DnsLabel = Annotated[str, AfterValidator(_dns_label)]
ObjectName = Annotated[str, AfterValidator(_object_name)]
Repository = Annotated[str, AfterValidator(_repository)]
Tag = Annotated[str, AfterValidator(_tag)]
ImageReference = Annotated[str, AfterValidator(_reference)]
Tolerated = Annotated[str, AfterValidator(_toleration)]
LabelKey = Annotated[str, AfterValidator(_label_key)]
LabelValue = Annotated[str, AfterValidator(_label_value)]
AnnotationValue = Annotated[str, AfterValidator(_annotation)]
Cpu = Annotated[str, AfterValidator(_cpu)]
Duration = Annotated[str, AfterValidator(_duration)]
Amount = Annotated[str, AfterValidator(_small)]
Network = Annotated[str, AfterValidator(_network)]
SshKey = Annotated[str, AfterValidator(_ssh_key)]
