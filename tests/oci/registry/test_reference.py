# SPDX-License-Identifier: Apache-2.0
"""Names of repositories and images in registries: what is taken, and what is refused with which advice."""

from __future__ import annotations

import pytest

from cellblock.errors import UsageError
from cellblock.oci.registry.reference import Reference, check_tag

DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost/a", Reference("localhost", "a")),
        ("registry.example:5000/slurm/worker", Reference("registry.example:5000", "slurm/worker")),
        ("registry.example/a__b/c-d:v1", Reference("registry.example", "a__b/c-d", "v1")),
        (f"[::1]:5000/a:t@{DIGEST}", Reference("[::1]:5000", "a", "t", DIGEST)),
        ("docker://registry.example/a/", Reference("registry.example", "a")),
    ],
)
def test_names_are_taken_apart(text: str, expected: Reference) -> None:
    assert Reference.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("worker", "no registry's host"),
        ("slurm/worker", "no registry's host"),
        ("registry.example/", "no registry's host"),
        ("registry.example/Slurm", "'Slurm' is no path"),
        ("registry.example/a//b", "is no path"),
        ("registry.example/../a", "is no path"),
        ("registry.example/a@sha256:12", "no digest"),
        ("regis try.example/a", "no host name"),
        ("user@registry.example/a", "no digest"),
    ],
)
def test_what_is_no_repository_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        Reference.parse(text)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("http://x", "write HOST[:PORT]/PATH, with --plain-http"),
        ("https://registry/slurm", "write HOST[:PORT]/PATH"),
        ("http://registry.example/a:1", "write registry.example/a:1, with --plain-http"),
        ("https://registry.example/a/", "write registry.example/a"),
        ("http://http://registry.example/a", "write HOST[:PORT]/PATH, with --plain-http"),
    ],
)
def test_advice_about_a_url_is_a_name_that_is_taken(text: str, advice: str) -> None:
    with pytest.raises(UsageError) as failure:
        Reference.parse(text)
    assert failure.value.hint == advice


@pytest.mark.parametrize("tag", ["", "-a", ".a", "a/b", "a b", "a" * 129])
def test_what_no_registry_takes_as_a_tag_is_refused(tag: str) -> None:
    with pytest.raises(UsageError, match="cannot be a tag"):
        check_tag(tag)
