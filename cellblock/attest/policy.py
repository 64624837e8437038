# SPDX-License-Identifier: Apache-2.0
"""Reads what an audit accepts: images/policy.yaml (docs/attest.md describes each key)."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from cellblock.attest.finding import CHECKS, Check, Finding
from cellblock.errors import DefinitionError
from cellblock.yaml_source import YamlSource, read_yaml, validate


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Privileged(_Strict):
    """A file that may be setuid or setgid, or have capabilities, and in which images (shell patterns)."""

    path: str = Field(pattern=r"^/")
    mode: str | None = Field(default=None, pattern=r"^[0-7]{4}$")
    capabilities: str | None = None
    images: list[str] = ["*"]
    reason: str = Field(min_length=1)

    def allows(self, image: str, path: str) -> bool:
        """Whether it speaks of the file `path` of `image`."""
        return _matches(image, self.images) and fnmatchcase(path, self.path)


class Forbidden(_Strict):
    """Packages (shell patterns) that images must not hold, but for the packages `except`."""

    packages: list[str] = Field(min_length=1)
    but: list[str] = Field(default=[], alias="except")
    images: list[str] = ["*"]
    not_images: list[str] = []
    reason: str = Field(min_length=1)

    def forbids(self, image: str, package: str) -> bool:
        """Whether `image` must not hold `package`."""
        here = _matches(image, self.images) and not _matches(image, self.not_images)
        return here and _matches(package, self.packages) and not _matches(package, self.but)


class Accepted(_Strict):
    """An exception: findings that are known, why they are accepted, and until when (the day included)."""

    check: Check
    image: str = "*"
    variant: str = "*"
    path: str | None = None
    package: str | None = None
    reason: str = Field(min_length=1)
    until: datetime.date | None = None

    @field_validator("check", mode="before")
    @classmethod
    def _known(cls, value: object) -> object:
        if value not in CHECKS:
            raise ValueError(f"there is no check '{value}'; there are {', '.join(CHECKS)}")
        return value

    def covers(self, finding: Finding) -> bool:
        """Whether it is about `finding`, be it expired or not."""
        return (
            self.check == finding.check
            and fnmatchcase(finding.image, self.image)
            and fnmatchcase(finding.variant, self.variant)
            and (self.path is None or fnmatchcase(finding.path, self.path))
            and (self.package is None or fnmatchcase(finding.package, self.package))
        )

    def expired(self, today: datetime.date) -> bool:
        """Whether its date has passed."""
        return self.until is not None and self.until < today


class PolicyFields(_Strict):
    """The keys of policy.yaml."""

    origins: list[str] = Field(min_length=1)
    privileged: list[Privileged] = []
    forbidden: list[Forbidden] = []
    same_version: list[str] = []
    same_ids: list[str] = []
    exceptions: list[Accepted] = []


@dataclass(frozen=True)
class Policy:
    """A policy and where its keys stand."""

    fields: PolicyFields
    source: YamlSource

    def where(self, *key: str | int) -> str:
        """FILE:LINE of a key."""
        return f"{self.source.path}:{self.source.line(key)}"


def load_policy(path: Path) -> Policy:
    """Read a policy. Raises DefinitionError naming file, line and key of each fault."""
    source = read_yaml(path)
    if not isinstance(source.data, dict):
        raise DefinitionError(f"{path}:1: must be a mapping of keys", hint="see docs/attest.md")
    return Policy(validate(source, PolicyFields), source)


def _matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
