# SPDX-License-Identifier: Apache-2.0
"""Each check in an image that it must find fault with, and in one that it must not."""

from __future__ import annotations

import datetime
import shutil
import subprocess
from pathlib import Path

import pytest

from cellblock.attest.audit import AuditFailed, audit, audit_or_raise
from cellblock.attest.checks import secrets as secrets_module
from cellblock.attest.checks.plugin_abi import plugin_release
from cellblock.attest.policy import Policy, load_policy
from cellblock.attest.subject import Subject
from cellblock.errors import DefinitionError
from cellblock.lock.archives import PackageArchive
from cellblock.lock.model import Lock, LockedPackage
from cellblock.oci.capability import XATTR
from cellblock.paths import PROJECT
from tests.attest.conftest import MakeSubject, WritePolicy, database
from tests.oci.layers import member

TODAY = datetime.date(2026, 6, 1)
NET_RAW = bytes.fromhex("0100000200200000000000000000000000000000")


def found(policy: Policy, *images: Subject, locks: dict[str, Lock] | None = None) -> list[str]:
    """What an audit says, a line a finding: CHECK IMAGE WHAT."""
    result = audit(images, policy, locks, today=TODAY)
    return [f"{each.check} {each.image} {each.what}" for each in result.findings]


@pytest.fixture
def policy(write_policy: WritePolicy) -> Policy:
    return write_policy("")


@pytest.fixture(scope="session")
def private_key() -> bytes:
    argv = ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]
    return subprocess.run(argv, check=True, capture_output=True).stdout


# -- secrets ---------------------------------------------------------------------------------------


SECRETS = {
    "etc/munge/munge.key": b"\x01" * 128,
    "etc/ssh/ssh_host_ed25519_key": b"anything",
    "root/.ssh/id_rsa": b"-----BEGIN OPENSSH PRIVATE KEY-----\n",
    "etc/machine-id": b"4d0c2d9c6a0b4c6f8f8f7a2a1b3c4d5e\n",
    "var/lib/dbus/machine-id": b"4d0c2d9c6a0b4c6f8f8f7a2a1b3c4d5e\n",
    "etc/shadow": b"root:*:1:0::::\nuser:$y$j9T$abc$def:19000:0:99999:7:::\n",
    "root/.netrc": b"machine a.example\n  login x\n  password y\n",
    "root/.docker/config.json": b'{"auths": {"a.example": {"auth": "dXNlcjpwYXNz"}}}',
    "run/containers/auth.json": b'{"auths": {"a.example": {"identitytoken": "x"}}}',
    "root/.git-credentials": b"https://user:secret@a.example\n",
    "root/.npmrc": b"//a.example/:_authToken=abc\n",
    "root/.aws/credentials": b"[default]\naws_secret_access_key = abc\n",
    "etc/environment": b"AWS_SECRET_ACCESS_KEY=abc\n",
    "root/.bashrc": b"export GITHUB_TOKEN='abc'\n",
    "etc/slurm/slurmdbd.conf": b"StoragePass=secret\n",
    "etc/slurm/jwt_hs256.key": b"\x02" * 32,
    "root/.bash_history": b"mysql -psecret\n",
    "etc/apt/sources.list": b"deb https://user:secret@a.example/debian x main\n",
    "opt/app/.env": b"AWS_ACCESS_KEY_ID=AKIA" + b"ABCDEFGH23456789" + b"\n",
    "opt/app/github": b"token: ghp_" + b"a1B2" * 9 + b"\n",
    "opt/app/hub": b"hf_" + b"aB" * 17,
    "opt/app/jwt": b"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0." + b"abcDEF0123456789_-abcDEF",
}


@pytest.mark.parametrize("path", SECRETS)
def test_a_secret_is_found_once(path: str, make: MakeSubject, policy: Policy) -> None:
    result = audit([make([member(path, SECRETS[path])])], policy)
    assert [(each.check, each.path) for each in result.findings] == [("secret", f"/{path}")]


def test_a_private_key_is_found_anywhere(make: MakeSubject, policy: Policy, private_key: bytes) -> None:
    one_line = private_key.replace(b"\n", b"\\n")
    image = make(
        [
            member("opt/a.txt", b"x" * 5000 + private_key),
            member("opt/b.json", b'{"key": "' + one_line + b'"}'),
            member("opt/c.bin", b"\0" * 100 + private_key),
        ]
    )
    assert [line.split()[2] for line in found(policy, image)] == ["/opt/a.txt", "/opt/b.json", "/opt/c.bin"]


def test_a_secret_on_the_cut_between_two_pieces_is_found(
    make: MakeSubject, policy: Policy, private_key: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets_module, "_PIECE", 8192)
    image = make([member("opt/key", b"x\n" * 4090 + private_key + b"x\n" * 9000)])
    (finding,) = audit([image], policy).findings
    assert "(byte 8180)" in finding.what


def test_a_secret_that_a_later_layer_removes_is_found_in_the_layer_that_has_it(
    make: MakeSubject, policy: Policy
) -> None:
    image = make([member("etc/munge/munge.key", b"\1" * 32)], [member("etc/munge/.wh.munge.key", "")])
    (finding,) = audit([image], policy).findings
    assert "a later layer hides it" in finding.what
    assert finding.layer == image.image.manifest.layers[0].digest


def test_a_secret_that_a_later_layer_overwrites_is_found(make: MakeSubject, policy: Policy) -> None:
    image = make([member("etc/machine-id", "0" * 32)], [member("etc/machine-id", "")])
    assert ["later layer" in line for line in found(policy, image)] == [True]


def test_what_only_looks_like_a_secret_is_none(make: MakeSubject, policy: Policy) -> None:
    image = make(
        [
            member("etc/machine-id", "uninitialized\n"),
            member("var/lib/dbus/machine-id", ""),
            member("etc/shadow", "root:*:1::::::\nslurm:!:1::::::\nmunge:!*:1::::::\n"),
            member("etc/gshadow", "root:*::\nslurm:!::\n"),
            member("root/.ssh/id_rsa.pub", "ssh-rsa AAAA"),
            member("etc/ssh/ssh_host_rsa_key.pub", "ssh-rsa AAAA"),
            member("root/.docker/config.json", '{"auths": {}}'),
            member("usr/lib/libcrypto.so", b"\0-----BEGIN PRIVATE KEY-----\0-----END PRIVATE KEY-----\0"),
            member("usr/share/x", "task-force: sk-proj-short, monkeyAIza, hf_symbol, AKIA"),
            member("usr/bin/show_history", "#!/bin/sh\n"),
            member("usr/share/doc/x", "git clone https://user:password@a.example/x"),
            member("etc/environment", "GITHUB_TOKEN=\nA_TOKEN_FILE=/run/x\n"),
            member("etc/profile.d/x.sh", 'export GITHUB_TOKEN="$(cat /run/secrets/token)"\n'),
            member("etc/apt/apt.conf", "Acquire::http::Proxy http://a.example:80/;"),
        ]
    )
    assert found(policy, image) == []


def test_a_finding_never_repeats_the_secret(make: MakeSubject, policy: Policy) -> None:
    token = "ghp_" + "a1B2" * 9
    (finding,) = audit([make([member("x", token)])], policy).findings
    assert token not in str(finding)
    assert token[4:12] not in str(finding.to_json())


def test_a_layer_of_several_images_is_reported_for_each(make: MakeSubject, policy: Policy) -> None:
    shared = [member("etc/munge/munge.key", "k")]
    images = make(shared, name="worker"), make(shared, [member("x", "")], name="login")
    assert [line.split()[1] for line in found(policy, *images)] == ["login", "worker"]


# -- setuid, setgid, capabilities -------------------------------------------------------------------


def test_rights_that_the_policy_does_not_list_are_found(make: MakeSubject, write_policy: WritePolicy) -> None:
    policy = write_policy(
        "privileged:\n"
        "- {path: /usr/bin/passwd, mode: '4755', reason: r}\n"
        "- {path: /usr/bin/ping, capabilities: cap_net_raw=ep, reason: r}\n"
        "- {path: /usr/bin/su, mode: '4755', images: [jail], reason: r}\n"
    )
    image = make(
        [
            member("usr/bin/passwd", "x", mode=0o4755),
            member("usr/bin/ping", "x", xattrs={XATTR: NET_RAW}),
            member("usr/bin/mine", "x", mode=0o4711),
            member("usr/bin/other-name", hard="usr/bin/mine"),
            member("usr/bin/locate", "x", mode=0o2755),
            member("usr/bin/dump", "x", xattrs={XATTR: NET_RAW}),
            member("usr/bin/su", "x", mode=0o4755),
            member("var/mail", mode=0o2775),
        ]
    )
    assert found(policy, image) == [
        "privileged worker /usr/bin/dump has the capabilities cap_net_raw=ep",
        "privileged worker /usr/bin/locate is setgid (mode 2755, owner 0:0)",
        "privileged worker /usr/bin/mine is setuid (mode 4711, owner 0:0)",
        "privileged worker /usr/bin/other-name is setuid (mode 4711, owner 0:0)",
        "privileged worker /usr/bin/su is setuid (mode 4755, owner 0:0)",
    ]


def test_more_rights_than_the_policy_lists_are_found(make: MakeSubject, write_policy: WritePolicy) -> None:
    policy = write_policy("privileged: [{path: /usr/bin/chage, mode: '2755', reason: r}]\n")
    image = make([member("usr/bin/chage", "x", mode=0o6755)])
    (line,) = found(policy, image)
    assert line.endswith("is setuid and setgid (mode 6755, owner 0:0), and the policy allows 2755")


def test_a_right_that_a_later_layer_takes_away_is_none(make: MakeSubject, policy: Policy) -> None:
    image = make([member("usr/bin/x", "x", mode=0o4755)], [member("usr/bin/x", "x", mode=0o755)])
    assert found(policy, image) == []


# -- packages and where they come from -------------------------------------------------------------


def test_forbidden_packages_are_found_in_the_images_they_are_forbidden_in(
    make: MakeSubject, write_policy: WritePolicy
) -> None:
    policy = write_policy(
        "forbidden: [{packages: ['gcc-*'], except: ['gcc-*-base'], not_images: [jail], reason: no tools}]\n"
    )
    packages = database(("gcc-14", "14.2"), ("gcc-14-base", "14.2"), ("bash", "5"))
    images = make([packages], name="worker"), make([packages], name="jail")
    assert found(policy, *images) == ["package worker holds the package gcc-14 14.2"]


def test_a_removed_package_is_not_held(make: MakeSubject, write_policy: WritePolicy) -> None:
    policy = write_policy("forbidden: [{packages: [gcc], reason: no tools}]\n")
    status = "Package: gcc\nStatus: deinstall ok config-files\nVersion: 1\n"
    assert found(policy, make([member("var/lib/dpkg/status", status)])) == []


def lock(*packages: tuple[str, str, str]) -> Lock:
    """Of (name, version, origin)."""
    archive = PackageArchive(("http://mirror.example/debian",), "trixie", ("main",))
    locked = {
        name: LockedPackage(name, version, "amd64", "0" * 64, 1, 1, f"pool/{name}.deb", 0, origin, False, ())
        for name, version, origin in packages
    }
    return Lock("v1", "amd64", "2026-01-01T00:00:00Z", (archive,), {}, locked)


def test_packages_of_another_origin_or_outside_of_the_lock_are_found(
    make: MakeSubject, policy: Policy
) -> None:
    image = make([database(("a", "1"), ("b", "1"), ("c", "2"), ("d", "1"))])
    locks = {image.reference: lock(("a", "1", "Debian"), ("b", "1", "Somebody"), ("c", "1", "Debian"))}
    assert found(policy, image, locks=locks) == [
        "origin worker holds b 1 of the origin 'Somebody'",
        "origin worker holds c 2 (amd64), which is not in the lock",
        "origin worker holds d 1 (amd64), which is not in the lock",
    ]


def test_what_cannot_be_checked_without_a_lock_is_said(make: MakeSubject, policy: Policy) -> None:
    result = audit([make([database(("a", "1"))])], policy)
    assert "localhost/cellblock/worker:v1" in result.unchecked[0]


# -- what must fit together ------------------------------------------------------------------------


def plugin(tmp_path: Path, major: int, minor: int) -> bytes:
    """A shared object with the symbol that Slurm's loader reads."""
    number = major << 16 | minor << 8 | 3
    source = f'const unsigned int plugin_version = {number}; const char plugin_name[] = \'x\' ? "" : "";'
    source = f"const unsigned int plugin_version = {number};"
    target = tmp_path / f"{major}.{minor}.so"
    argv = ["gcc", "-shared", "-nostdlib", "-x", "c", "-", "-o", str(target)]
    subprocess.run(argv, input=source.encode(), check=True, capture_output=True)
    return target.read_bytes()


def test_a_plugin_of_another_slurm_is_found(make: MakeSubject, policy: Policy, tmp_path: Path) -> None:
    path = "usr/lib/x86_64-linux-gnu/slurm-wlm/spank_jail.so"
    slurmd = database(("slurmd", "24.11.5-4", "slurm-wlm"))
    fits = make([slurmd, member(path, plugin(tmp_path, 24, 11))], name="login")
    old = make([slurmd, member(path, plugin(tmp_path, 24, 5))])
    assert found(policy, fits, old) == [
        f"plugin-abi worker /{path} is built for Slurm 24.05, and the image has 24.11"
    ]


def test_a_plugin_that_is_none_is_found(make: MakeSubject, policy: Policy) -> None:
    image = make([member("usr/lib/spank_x.so", "not ELF")])
    assert found(policy, image) == [
        "plugin-abi worker /usr/lib/spank_x.so is named as a SPANK plugin and has no symbol plugin_version"
    ]


def test_the_release_of_a_stripped_plugin_is_read(tmp_path: Path) -> None:
    assert plugin_release(plugin(tmp_path, 25, 11)) == (25, 11)
    subprocess.run([shutil.which("strip") or "strip", str(tmp_path / "25.11.so")], check=True)
    assert plugin_release((tmp_path / "25.11.so").read_bytes()) == (25, 11)


def test_versions_that_differ_between_images_of_a_variant_are_found(
    make: MakeSubject, write_policy: WritePolicy
) -> None:
    policy = write_policy("same_version: [pmix, munge]\n")
    images = [
        make([database(("libpmix2t64", version, "pmix"), ("munge", "0.5"))], name=name, variant=variant)
        for name, variant, version in (
            ("controller", "v1", "5.0.7-1"),
            ("login", "v1", "5.0.7-1"),
            ("worker", "v1", "4.2.0-1"),
            ("worker", "v2", "4.2.0-1"),
        )
    ]
    assert found(policy, *images) == ["version worker has pmix 4.2.0-1, and controller, login 5.0.7-1"]


def test_versions_are_those_of_a_source_package_or_of_one_package(
    make: MakeSubject, write_policy: WritePolicy
) -> None:
    policy = write_policy("same_version: [munge, slurm-client]\n")
    images = (
        make([database(("munge", "1-1+b1", "munge (1-1)"), ("slurm-client", "24-1", "slurm-wlm"))], name="a"),
        make([database(("libmunge2", "1-1", "munge"), ("slurm-client", "24-1", "slurm-wlm"))], name="b"),
        make([database(("slurm-client", "25-1"))], name="c"),
    )
    assert found(policy, *images) == ["version c has slurm-client 25-1, and a, b 24-1"]


def test_ids_that_differ_between_images_of_a_variant_are_found(
    make: MakeSubject, write_policy: WritePolicy
) -> None:
    policy = write_policy("same_ids: [slurm, munge]\n")

    def accounts(slurm: int, munge_group: int) -> list[tuple[object, bytes]]:
        passwd = f"root:x:0:0::/:/bin/sh\nslurm:x:{slurm}:1::/:/x\nmunge:x:2:2::/:/x\n"
        group = f"slurm:x:1:\nmunge:x:{munge_group}:\n"
        return [member("etc/passwd", passwd), member("etc/group", group)]

    images = [
        make(accounts(1, 2), name="base"),
        make(accounts(1, 2), name="controller"),
        make(accounts(7, 2), name="login"),
        make(accounts(1, 9), name="worker"),
        make([member("out/x", "1")], name="plugins"),
    ]
    assert found(policy, *images) == [
        "account login has slurm as uid 7 gid 1, and base, controller, worker uid 1 gid 1",
        "account worker has munge as uid 2 gid 2 (group 9), and base, controller, login uid 2 gid 2",
    ]


# -- the policy ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exception", "left"),
    [
        ("{check: secret, path: /etc/munge/munge.key, reason: a test's}", 0),
        ("{check: secret, path: /etc/munge/munge.key, reason: a test's, until: 2026-06-01}", 0),
        ("{check: secret, path: /etc/munge/munge.key, reason: a test's, until: 2026-05-31}", 1),
        ("{check: secret, image: 'w*', variant: v1, reason: a test's}", 0),
        ("{check: secret, image: login, reason: a test's}", 1),
        ("{check: privileged, path: '*', reason: a test's}", 1),
    ],
)
def test_an_exception_covers_what_it_says_and_until_when(
    exception: str, left: int, make: MakeSubject, write_policy: WritePolicy
) -> None:
    policy = write_policy(f"exceptions: [{exception}]\n")
    result = audit([make([member("etc/munge/munge.key", "k")])], policy, today=TODAY)
    assert (len(result.findings), len(result.accepted)) == (left, 1 - left)


def test_an_expired_exception_is_named_in_the_finding(make: MakeSubject, write_policy: WritePolicy) -> None:
    policy = write_policy("exceptions: [{check: secret, reason: r, until: 2020-01-01}]\n")
    (finding,) = audit([make([member("etc/munge/munge.key", "k")])], policy).findings
    assert "the exception for it expired on 2020-01-01" in finding.next


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("privileged: [{path: usr/bin/x, reason: r}]", r"policy\.yaml:2: privileged\.0\.path"),
        ("exceptions:\n- {check: secret}", r"policy\.yaml:3: exceptions\.0\.reason: missing"),
        (
            "exceptions:\n- {check: secrets, reason: r}",
            r"policy\.yaml:3: exceptions\.0\.check: there is no check 'secrets'",
        ),
        ("forbiden: []", r"policy\.yaml:2: forbiden: unknown key; did you mean 'forbidden'"),
        ("exceptions: [{check: secret, reason: r, until: soon}]", r"policy\.yaml:2: exceptions\.0\.until"),
    ],
)
def test_a_wrong_policy_is_refused_with_file_line_and_key(
    text: str, message: str, write_policy: WritePolicy
) -> None:
    with pytest.raises(DefinitionError, match=message):
        write_policy(text)


def test_the_projects_own_policy_is_valid_and_excuses_no_key_but_published_ones(
    make: MakeSubject, private_key: bytes
) -> None:
    policy = load_policy(PROJECT / "images" / "policy.yaml")
    image = make(
        [
            member("usr/lib/x86_64-linux-gnu/libgnutls.so.30", b"\0" + private_key),
            member("usr/lib/x86_64-linux-gnu/libssl.so.3", b"\0" + private_key),
        ]
    )
    assert [line.split()[2] for line in found(policy, image)] == ["/usr/lib/x86_64-linux-gnu/libssl.so.3"]


def test_a_failed_audit_stops_what_asked_for_it(make: MakeSubject, policy: Policy) -> None:
    with pytest.raises(AuditFailed, match=r"1 finding:\nworker:v1, layer [0-9a-f]{12}: /etc/munge/munge.key"):
        audit_or_raise([make([member("etc/munge/munge.key", "k")])], policy)
    assert audit_or_raise([make([member("etc/motd", "")])], policy).findings == ()
