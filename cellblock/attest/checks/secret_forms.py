# SPDX-License-Identifier: Apache-2.0
"""Recognises secrets by names of files (`id_rsa`) and by bytes in files (the head of a private key).

Patterns of tokens are those that their issuers document so that leaks can be found. What has no pattern of
its own, such as a password, is found by the file that it belongs in, or by secret_names.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from cellblock.attest.checks.secret_names import URL_PASSWORD, secret_assignments, url_password


@dataclass(frozen=True)
class TokenForm:
    """Bytes that are a secret wherever they stand: they begin with `anchor`, which is searched first.

    A `word` does not stand in the middle of a longer one.
    """

    what: str
    anchor: bytes
    pattern: re.Pattern[bytes]
    word: bool

    def find(self, data: bytes) -> int | None:
        """Where the first one begins."""
        at = data.find(self.anchor)
        while at >= 0:
            inside = self.word and at > 0 and data[at - 1] in _WORD
            if not inside and self.pattern.match(data, at):
                return at
            at = data.find(self.anchor, at + 1)
        return None


def _form(what: str, anchor: bytes, rest: bytes, *, word: bool = True) -> TokenForm:
    return TokenForm(what, anchor, re.compile(re.escape(anchor) + rest), word)


_WORD = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-/+"
# Between a PEM's lines: also the "\n" of a JSON or YAML string.
_BREAK = rb"(?:\\r|\\n|\s)"

# With its base64: libraries and ssh-keygen hold the bare words.
PRIVATE_KEY = _form(
    "a private key (PEM)",
    b"-----BEGIN ",
    rb"(?:[A-Z0-9]+ ){0,3}PRIVATE KEY-----" + _BREAK + rb"+(?:[A-Za-z-]+: [^\n]*\n\s*)*[A-Za-z0-9+/=]{40}",
    word=False,
)

TOKEN_FORMS: tuple[TokenForm, ...] = (
    PRIVATE_KEY,
    _form("a private key (PGP)", b"-----BEGIN PGP PRIVATE KEY BLOCK-----", rb"\s", word=False),
    _form("a private key (PuTTY)", b"PuTTY-User-Key-File-", rb"[23]: \S+\s"),
    _form("a private key (age)", b"AGE-SECRET-KEY-1", rb"[0-9A-Z]{58}"),
    _form("an access key of AWS", b"AKIA", rb"[0-9A-Z]{16}(?![0-9A-Za-z])"),
    *(
        _form("a token of GitHub", anchor, rb"[A-Za-z0-9]{36}")
        for anchor in (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_")
    ),
    _form("a token of GitHub", b"github_pat_", rb"[A-Za-z0-9_]{60}"),
    _form("a token of GitLab", b"glpat-", rb"[A-Za-z0-9_-]{20}"),
    _form("a token of Slack", b"xox", rb"[abeoprs]-[0-9]{8,}-[A-Za-z0-9-]{12,}"),
    _form("a token of Hugging Face", b"hf_", rb"[A-Za-z]{34}(?![A-Za-z0-9])"),
    _form("a token of npm", b"npm_", rb"[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    _form("a token of PyPI", b"pypi-AgE", rb"[A-Za-z0-9_-]{60}"),
    _form("a token of Docker Hub", b"dckr_pat_", rb"[A-Za-z0-9_-]{20}"),
    _form("a token of NVIDIA", b"nvapi-", rb"[A-Za-z0-9_-]{60}"),
    _form("a key of Anthropic or OpenAI", b"sk-", rb"(?:ant|proj)-[A-Za-z0-9_-]{40}"),
    _form("a key of Google", b"AIza", rb"[0-9A-Za-z_-]{35}(?![0-9A-Za-z_-])"),
    _form("a token of Vault", b"hvs.", rb"[A-Za-z0-9_-]{60}"),
    _form(
        "a JSON Web Token",
        b"eyJ",
        rb"[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{20,}",
    ),
)

_REGISTRY_AUTH = re.compile(rb'"(?:auth|identitytoken|registrytoken|password)"\s*:\s*"[^"]+"')
_ENTRY_PASSWORD = re.compile(rb"^\s*(?:machine\s.*)?\bpassword\s+\S", re.MULTILINE)
_NPM_AUTH = re.compile(rb"^[^#;\n]*_(?:authToken|auth|password)\s*=\s*[^\s$]", re.MULTILINE)
_KEY_LINE = re.compile(rb"^\s*(?:aws_secret_access_key|aws_session_token)\s*=\s*\S", re.MULTILINE)
_PASSWORD_LINE = re.compile(rb"^\s*(?:StoragePass|password)\s*[=:]\s*\S", re.MULTILINE | re.IGNORECASE)
# Of crypt(5): a hash names its method between dollars; 13 characters alone are DES.
_SHADOW_HASH = re.compile(rb"^[^:\n]+:!?(?:\$[^:\n]+|[./0-9A-Za-z]{13}|_[./0-9A-Za-z]{19}):", re.MULTILINE)
_EMPTY_PASSWORD = re.compile(rb"^[^:\n]+::", re.MULTILINE)


def _any(data: bytes) -> bool:
    return bool(data.strip())


def _machine_id(data: bytes) -> bool:
    # "uninitialized" asks systemd for a new one at each first boot: machine-id(5).
    return _any(data) and data.strip() != b"uninitialized"


def _matches(pattern: re.Pattern[bytes]) -> Callable[[bytes], bool]:
    return lambda data: pattern.search(data) is not None


@dataclass(frozen=True)
class FileForm:
    """A file that is a secret, or holds one, by its path (shell pattern; `*` crosses directories)."""

    pattern: str
    what: str
    why: str
    next: str
    is_secret: Callable[[bytes], bool] = _any


_COPY = "whoever can pull the image has it, in each of its copies, for ever"
_IDENTITY = "all machines that start from the image share it and can pass for one another"
_MOUNT = "mount it when the container runs, remove it from what brought it, and make a new one"

# Where shells and daemons get their variables from.
_ENVIRONMENTS = (
    *("etc/environment", "etc/environment.d/*.conf", "etc/profile", "etc/profile.d/*", "etc/bash.bashrc"),
    *("root/.bashrc", "root/.profile", "home/*/.bashrc", "home/*/.profile", "root/.env", "home/*/.env"),
)

FILE_FORMS: tuple[FileForm, ...] = (
    FileForm(
        "etc/munge/*.key",
        "the munge key",
        "whoever has it is root for all of the cluster: it signs any user's name",
        "remove it in the same step that makes it (`rm -f /etc/munge/munge.key` in 'run')",
    ),
    FileForm(
        "etc/slurm*/*.key",
        "a key of Slurm (auth/slurm or JWT)",
        "whoever has it is any user of the cluster",
        _MOUNT,
    ),
    FileForm(
        "etc/ssh/ssh_host_*_key",
        "an SSH host key",
        _IDENTITY,
        "remove it in the same step that makes it (`rm -f /etc/ssh/ssh_host_*`); hosts make theirs at start",
    ),
    FileForm(
        "*.ssh/id_*",
        "a private SSH key",
        _COPY,
        _MOUNT,
        # The public half stands beside it.
        lambda data: b"PRIVATE KEY" in data,
    ),
    *(
        FileForm(
            path,
            "a machine-id that is not empty",
            _IDENTITY,
            "remove it at the end of 'run'; systemd makes one at boot",
            _machine_id,
        )
        for path in ("etc/machine-id", "var/lib/dbus/machine-id")
    ),
    FileForm(
        "var/lib/systemd/random-seed", "a random seed", _IDENTITY, "remove it; systemd writes one at shutdown"
    ),
    *(
        FileForm(
            path,
            "a password's hash",
            "it can be guessed at leisure, and the account is the same on every machine",
            "lock the account (`passwd --lock`), or set the password when the machine starts",
            _matches(_SHADOW_HASH),
        )
        for path in ("etc/shadow", "etc/shadow-", "etc/gshadow", "etc/gshadow-")
    ),
    *(
        FileForm(
            path,
            "an account with an empty password",
            "anybody may log in to it where PAM's nullok is set",
            "lock the account (`passwd --lock`)",
            _matches(_EMPTY_PASSWORD),
        )
        for path in ("etc/shadow", "etc/shadow-")
    ),
    FileForm("*.netrc", "a password in .netrc", _COPY, _MOUNT, _matches(_ENTRY_PASSWORD)),
    FileForm("etc/apt/auth.conf*", "a password of apt", _COPY, _MOUNT, _matches(_ENTRY_PASSWORD)),
    *(
        FileForm(path, "credentials of a registry", _COPY, _MOUNT, _matches(_REGISTRY_AUTH))
        for path in ("*.docker/config.json", "*.dockercfg", "*containers/auth.json")
    ),
    FileForm("*.git-credentials", "a password of git", _COPY, _MOUNT, url_password),
    FileForm("*.npmrc", "a token of npm", _COPY, _MOUNT, _matches(_NPM_AUTH)),
    FileForm("*.pypirc", "a password of PyPI", _COPY, _MOUNT, _matches(_PASSWORD_LINE)),
    FileForm("*.pgpass", "a password of PostgreSQL", _COPY, _MOUNT),
    FileForm("*.aws/credentials", "a secret key of AWS", _COPY, _MOUNT, _matches(_KEY_LINE)),
    FileForm("*.kube/config", "credentials of Kubernetes", _COPY, _MOUNT),
    *(
        FileForm(
            path,
            "a secret in a variable",
            _COPY,
            "remove it, revoke it, and pass it to the program when it runs",
            lambda data: any(secret_assignments(data)),
        )
        for path in _ENVIRONMENTS
    ),
    FileForm("etc/krb5.keytab", "a Kerberos key table", _COPY, _MOUNT),
    FileForm("etc/slurm*/slurmdbd.conf", "a password of a database", _COPY, _MOUNT, _matches(_PASSWORD_LINE)),
    FileForm(
        "*_history",
        "a history of commands",
        "what was typed while building is in it, passwords too",
        "remove it, and build without an interactive shell",
    ),
)

# URLs with a password, in what people configure: code and documentation hold examples of such.
_CONFIGURED = ("etc/", "root/", "home/", "usr/local/etc/")


def file_secrets(path: str, data: bytes) -> Iterator[FileForm]:
    """The forms that a file of this path and content has."""
    name = path.rpartition("/")[2]
    known = False
    for form in FILE_FORMS:
        # A history is a hidden file of a home; programs and modules are called so too.
        if form.pattern == "*_history" and not name.startswith("."):
            continue
        if fnmatchcase(path, form.pattern) and form.is_secret(data):
            known = True
            yield form
    if not known and path.startswith(_CONFIGURED) and (found := URL_PASSWORD.search(data)):
        line = data.count(b"\n", 0, found.start()) + 1
        yield FileForm(path, f"a URL with a password (line {line})", _COPY, _MOUNT)


# As git tells binaries from text: a zero byte near the beginning.
_LOOKED_AT = 8192


def is_binary(data: bytes) -> bool:
    """Whether a file with this beginning is no text."""
    return b"\0" in data[:_LOOKED_AT]


def tokens(data: bytes, *, binary: bool = False) -> Iterator[tuple[str, int]]:
    """What stands in `data`, and at which offset; each form once.

    In binaries private keys alone are looked for: three quarters of an image are libraries, in which other
    forms would be found by chance.
    """
    for form in (PRIVATE_KEY,) if binary else TOKEN_FORMS:
        at = form.find(data)
        if at is not None:
            yield form.what, at
