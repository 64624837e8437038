# SPDX-License-Identifier: Apache-2.0
"""Checks a person's settings for CI jobs, such as runners, and has the shell lines that every job needs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cellblock.errors import UsageError
from cellblock.variants import ARCHITECTURES

REPOSITORY_VARIABLE = "CELLBLOCK_REPOSITORY"
"""HOST/PATH in a job; set in the CI service's own settings when none is given here."""

KEY_VARIABLE = "CELLBLOCK_SIGNING_KEY"
"""A private key in PEM, in a job."""

_IDENTITY = ["ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "SIGSTORE_ID_TOKEN"]
"""By which cosign has a job vouched for, on GitHub and GitLab."""

CHECKOUT = "actions/checkout@11bd71901bbe5b1630ceea73d27597364c9af683"
"""Version 4.2.2."""

# A name with a host in the grammar of distribution/reference: no scheme, no tag, a path in lower case.
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*(:\d+)?(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)+")
_SECRET = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# These words stand in YAML and shell; nothing in them needs quoting there.
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*")
_ACTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*@[0-9a-f]{40}")


@dataclass(frozen=True)
class Settings:
    """What the person decides about the jobs.

    `repository` and `cache` are HOST/PATH; without, a job takes them from the service's settings.
    Secrets are named, never given; without names those are used that the service has by itself.
    `runners` maps Debian's name of an architecture to the labels of a runner. `checkout` is GitHub's action
    that fetches the tree, by commit: a tag can be moved.
    """

    repository: str | None = None
    cache: str | None = None
    user_secret: str | None = None
    password_secret: str | None = None
    runners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    container: str | None = None
    checkout: str = CHECKOUT
    branch: str = "main"
    timeout_minutes: int = 90
    locked: bool = False
    attest: bool = False
    key_secret: str | None = None
    """Of the private key that signs."""
    program: str = "build.py"
    """The launcher, from where a job begins."""
    sites: tuple[str, ...] = ()
    """Folders of a site's own definitions, from where a job begins."""
    keyless: bool = False
    """The service vouches for the job, and Sigstore for the service."""

    @property
    def with_submodules(self) -> bool:
        """Whether Cellblock is a part of what a job checks out, and not the whole of it."""
        return "/" in self.program

    @property
    def to_push(self) -> tuple[str, ...]:
        """Options of `build.py push` that attest and sign."""
        attest = ("--attest",) if self.attest or self.key_secret or self.keyless else ()
        return (*attest, *self.to_join)

    @property
    def to_join(self) -> tuple[str, ...]:
        """Those that sign."""
        if self.key_secret:
            return ("--key", f"env://{KEY_VARIABLE}")
        return ("--keyless",) if self.keyless else ()

    @property
    def as_root(self) -> str:
        """The shell line after which `$root` runs what follows it as root.

        Images are built by root; a runner of a CI service is often another user, who may use sudo.
        """
        names = ["REGISTRY_AUTH_FILE", *([KEY_VARIABLE] if self.key_secret else [])]
        names += _IDENTITY if self.keyless else []
        return f'root=$([ "$(id -u)" = 0 ] || echo "sudo --preserve-env={",".join(names)}")'

    def __post_init__(self) -> None:
        self._check(
            "--repository", self.repository, _REPOSITORY, "HOST[:PORT]/PATH, without https:// and tag"
        )
        self._check("--cache", self.cache, _REPOSITORY, "HOST[:PORT]/PATH, without https:// and tag")
        self._check("--user-secret", self.user_secret, _SECRET, "a secret's name, never the secret itself")
        self._check(
            "--password-secret", self.password_secret, _SECRET, "a secret's name, never the secret itself"
        )
        self._check("--container", self.container, _WORD, "an image's reference")
        self._check(
            "--checkout", self.checkout, _ACTION, "OWNER/ACTION@COMMIT with 40 digits: tags can be moved"
        )
        for site in self.sites:
            self._check("--images", site, _WORD, "a folder without blanks, quotes and a dot at its beginning")
        self._check("--branch", self.branch, _WORD, "one branch's name")
        self._check("--key-secret", self.key_secret, _SECRET, "a secret's name, never the key itself")
        if self.key_secret and self.keyless:
            raise UsageError("--keyless signs without a key", hint="leave --key-secret or --keyless out")
        if (self.user_secret is None) != (self.password_secret is None):
            raise UsageError(
                "--user-secret and --password-secret are given together",
                hint="name both, or none for what the CI service has by itself",
            )
        if not 1 <= self.timeout_minutes <= 24 * 60:
            raise UsageError(
                f"--timeout: {self.timeout_minutes} minutes", hint="give 1 minute to a day, in minutes"
            )

    @staticmethod
    def _check(option: str, value: str | None, pattern: re.Pattern[str], expected: str) -> None:
        if value is not None and not pattern.fullmatch(value):
            # Who gives a secret where its name belongs must not find it in a log.
            shown = "what was given" if pattern is _SECRET else f"'{value}'"
            raise UsageError(f"{option}: cannot be {shown}", hint=f"give {expected}")


def parse_runners(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """`ARCH=LABEL[,LABEL...]` as a mapping. Raises UsageError when one is something else."""
    runners: dict[str, tuple[str, ...]] = {}
    for text in texts:
        arch, _, rest = text.partition("=")
        labels = tuple(rest.split(","))
        if arch not in ARCHITECTURES or not all(_WORD.fullmatch(label) for label in labels):
            raise UsageError(
                f"--runner: '{text}' does not say which runners an architecture has",
                hint=f"give ARCH=LABEL[,LABEL...]; architectures: {', '.join(ARCHITECTURES)}",
            )
        runners[arch] = labels
    return runners


# Not by `skopeo login`: a runner need not have it before the first build.
LOGIN = (
    f': "${{{REPOSITORY_VARIABLE}:?set it to HOST/PATH in your registry}}"',
    ': "${REGISTRY_USER:?the secret that names the user is not set}"',
    ': "${REGISTRY_PASSWORD:?the secret that holds the password is not set}"',
    'login=$(printf %s:%s "$REGISTRY_USER" "$REGISTRY_PASSWORD" | base64 --wrap=0)',
    f'host="${{{REPOSITORY_VARIABLE}%%/*}}"',
    '(umask 077; printf \'{"auths":{"%s":{"auth":"%s"}}}\\n\' "$host" "$login" > "$REGISTRY_AUTH_FILE")',
)
"""Shell lines that write containers-auth.json(5) from REGISTRY_USER and REGISTRY_PASSWORD."""
