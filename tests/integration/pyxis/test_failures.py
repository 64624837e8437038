# SPDX-License-Identifier: Apache-2.0
"""What a user reads when something is wrong: first what failed, then why and what to do. Never rc=-1."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.enroot.registry.images import DOCKER_LIST, Image, Pusher, make_index
from tests.integration.jobs import home
from tests.integration.pyxis.conftest import IMAGE, LAYER, Containers
from tests.integration.pyxis.registry_image import image
from tests.integration.registry import PASSWORD, USER, RunningRegistry, running_registry
from tests.integration.registry_proxy import Fault, Proxy, running_proxy

pytestmark = pytest.mark.integration

# In the jail, where mksquashfs is. A superblock says its size at byte 40, its compression at byte 20.
_MAKE = f"""rm -rf ~/unfit; mkdir ~/unfit; cd ~/unfit; mkdir dir.sqsh
: > empty.sqsh; echo text > text.sqsh; head -c 100000 {IMAGE} > cut.sqsh; cp {IMAGE} good.sqsh
cp {IMAGE} unread.sqsh; chmod 0 unread.sqsh
cp {IMAGE} unknown.sqsh; printf '\\020' | dd of=unknown.sqsh bs=1 seek=20 conv=notrunc status=none
mkdir -p loader/bin; cp /bin/true loader/bin/; cd loader/bin; head -c 64 true > foreign; chmod +x foreign
machine=$(od -An -tu1 -j18 -N1 true); if [ $machine = 62 ]; then printf '\\267'; else printf '\\076'; fi |
    dd of=foreign bs=1 seek=18 conv=notrunc status=none; cd ../..
mksquashfs loader loader.sqsh -quiet -no-progress > /dev/null
printf '#!/usr/bin/fish\\n' > script; chmod +x script; echo > plain"""


@dataclass(frozen=True)
class Case:
    """srun's words (but the last: a program), and what its lines contain, in this order."""

    words: tuple[str, ...]
    lines: tuple[str, ...]
    program: str = "true"


FILES = {
    "empty": Case(
        ("./empty.sqsh",), ("container start failed: ./empty.sqsh", "the file is empty", "next: make it")
    ),
    "text": Case(
        ("./text.sqsh",), ("container start failed", "it is no squashfs image", "next: enroot import")
    ),
    "cut": Case(
        ("./cut.sqsh",),
        ("start failed", "the image is cut off: there are 100000 of its", "next: make it or copy"),
    ),
    "cut, unpacked": Case(
        ("./cut.sqsh", "--container-name=unfit"),
        (
            "failed to create container filesystem from ./cut.sqsh",
            "the image is cut off",
            "next: make it or copy it",
        ),
    ),
    "directory": Case(
        ("./dir.sqsh",), ("container start failed", "it is a directory", "next: make an image of it")
    ),
    "compression": Case(
        ("./unknown.sqsh",), ("start failed", "of a compression that nothing here knows", "next: ")
    ),
    "unreadable": Case(
        ("./unread.sqsh",), ("./unread.sqsh cannot be read: Permission denied", "next: have its owner")
    ),
    "missing": Case(
        ("./none.sqsh",), ("there is no file ./none.sqsh on this node", "next: it was looked for in ")
    ),
    "no program": Case(
        ("./good.sqsh",), ("there is no program nothing in the", "next: ", "execve()"), "nothing"
    ),
    "another machine": Case(
        ("./loader.sqsh",), ("is a program for ", "next: take an image", "execve()"), "/bin/foreign"
    ),
    "no loader": Case(("./loader.sqsh",), ("/bin/true needs the loader ", "next: ", "execve()"), "/bin/true"),
    "no interpreter": Case(
        ("./good.sqsh", "--container-mounts=./script:/script"),
        ("/script is a script for /usr/bin/fish, which is not in the container", "next: ", "execve()"),
        "/script",
    ),
    "not executable": Case(
        ("./good.sqsh", "--container-mounts=./plain:/plain"),
        ("/plain may not be executed", "next: chmod +x", "execve()"),
        "/plain",
    ),
    "mount over the other kind": Case(
        ("./good.sqsh", "--container-mounts=./plain:/etc"),
        ("container start failed", "--mount:1: /etc: ", "is one a directory and the other a file?"),
    ),
    "mount of nothing": Case(
        ("./good.sqsh", "--container-mounts=./nothing:/x"),
        ("container start failed", 'the source "./nothing" is missing on this node; make it'),
    ),
    "mount out of reach": Case(
        ("./good.sqsh", "--container-mounts=/root/x:/x"),
        ("source path cannot be reached: /root/x: Permission denied",),
    ),
}


def check(name: str, text: str, lines: tuple[str, ...]) -> None:
    """`lines` are there in their order, and the task failed."""
    place = 0
    for line in lines:
        found = text.find(line, place)
        assert found >= 0, f"{name}: no {line!r} after {text[:place]!r} in:\n{text}"
        place = found + 1
    assert "rc=-1" not in text, name
    assert "status 0\n" not in text, name


def tried(containers: Containers, cases: dict[str, Case], *options: str, **variables: str) -> dict[str, str]:
    """What srun said of each, and "status N"; in one allocation."""
    script = ""
    for name, case in cases.items():
        words = " ".join((f"--container-image='{case.words[0]}'", *case.words[1:], case.program))
        script += f"echo '== {name}'; srun {words} 2>&1 || echo status $?\n"
    setting = "".join(f"export {name}='{value}'\n" for name, value in variables.items())
    done = containers.script(setting + script, "-n1", *options)
    parts = [part.partition("\n") for part in done.out.split("== ")[1:]]
    return {name: text for name, _, text in parts}


def test_files_and_programs(containers: Containers) -> None:
    user = containers.user
    containers.cluster.jail("bash", "-lc", _MAKE, user=user).ok()
    said = tried(containers, FILES, f"-D/home/{user}/unfit")
    for name, case in FILES.items():
        check(name, said[name], case.lines)
    shutil.rmtree(home(containers.cluster, user) / "unfit")
    assert containers.leftovers() == []


@dataclass(frozen=True)
class Hub:
    """A registry that commits faults by the name that is asked for, one with a password, one with a CA."""

    proxy: Proxy
    image: Image
    closed: RunningRegistry
    secret: RunningRegistry
    settings: dict[str, str]


def _certificate(folder: Path, address: str) -> tuple[Path, Path]:
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=own"]
    names = ["-addext", f"subjectAltName=IP:{address}", "-keyout", "key.pem", "-out", "certificate.pem"]
    subprocess.run([*new, *names], cwd=folder, check=True, capture_output=True)
    return folder / "certificate.pem", folder / "key.pem"


@pytest.fixture(scope="module")
def faulty(containers: Containers, gateway: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    folder = tmp_path_factory.mktemp("faulty")
    tar = (containers.cluster.root / LAYER.lstrip("/")).read_bytes()
    with (
        running_registry(folder / "open") as registry,
        running_proxy(registry.host, gateway) as proxy,
        running_registry(folder / "closed", address=gateway, password=True) as closed,
        running_registry(folder, address=gateway, certificate=_certificate(folder, gateway)) as secret,
    ):
        made = image(tar, docker=True)
        for name in ("library/ubuntu", "user/repo", "team/damaged", "team/busy"):
            Pusher(f"http://{registry.host}", name).image(made, "latest")
        ubuntu = Pusher(f"http://{registry.host}", "library/ubuntu")
        ubuntu.manifest(made.manifest, "24.04")
        own = "linux/arm64" if os.uname().machine == "aarch64" else "linux/amd64"
        other = "linux/s390x"
        ubuntu.manifest(make_index({own: made, other: made}, docker=True), "index")
        ubuntu.manifest(make_index({other: made}, docker=True), "elsewhere")
        oci = Pusher(f"http://{registry.host}", "user/repo").image(image(tar, docker=False), "oci")
        assert oci.manifest.media_type != DOCKER_LIST
        Pusher(f"http://{USER}:{PASSWORD}@{closed.host}", "a/b").image(made, "latest")
        root = containers.cluster.root
        (root / "opt/faulty-registries.conf").write_text(
            f'[[registry]]\nprefix = "docker.io"\nlocation = "docker.io"\n'
            f'[[registry.mirror]]\nlocation = "{proxy.host}"\ninsecure = true\n'
            + "".join(
                f'[[registry]]\nlocation = "{host}"\ninsecure = true\n' for host in (proxy.host, closed.host)
            )
        )
        yield Hub(proxy, made, closed, secret, {"CONTAINERS_REGISTRIES_CONF": "/opt/faulty-registries.conf"})


def test_registries(containers: Containers, faulty: Hub, gateway: str) -> None:
    host, image_failed = faulty.proxy.host, "failed to import docker image: "
    denied = b'{"errors":[{"code":"DENIED","message":"requested access is denied"}]}'
    unknown = b'{"errors":[{"code":"NAME_UNKNOWN","message":"repository name not known to registry"}]}'
    limited = {"Retry-After": "7200"}
    layer = faulty.image.layers[0].digest
    faulty.proxy.faults[:] = [
        Fault("team/none", times=99, status=404, body=unknown),
        Fault("team/denied", times=99, status=403, body=denied),
        Fault("team/limited", times=99, status=429, headers=limited),
        Fault(f"GET .*team/damaged/blobs/{layer}", times=99, corrupt_download=True),
    ]
    home(containers.cluster, containers.user).joinpath("wrong.auth").write_text(
        json.dumps({"auths": {faulty.closed.host: {"auth": "YWRhOndyb25n"}}})  # ada:wrong
    )
    wrong = {"REGISTRY_AUTH_FILE": f"/home/{containers.user}/wrong.auth"}
    cases = {
        "no image": Case(
            (f"{host}#team/none:1",), (image_failed, f"{host} has no image team/none", "next: check")
        ),
        "no tag": Case(
            (f"{host}#user/repo:2",), (image_failed, f"{host} has no user/repo:2: the tag is", "next: ")
        ),
        "denied": Case(
            (f"{host}#team/denied",), (image_failed, "403, requested access is denied", "next: ask who")
        ),
        "limited": Case(
            (f"{host}#team/limited",), (image_failed, "too many requests for now, until ", "next: run ")
        ),
        "damaged": Case(
            (f"{host}#team/damaged",),
            (
                image_failed,
                layer.removeprefix("sha256:")[:12],
            ),
        ),
        "no host": Case(
            ("none.invalid#a/b",), (image_failed, "no host of this name is known", "next: check the na")
        ),
        "refused": Case(
            (f"{gateway}:1#a/b",), (image_failed, "no connection: ", "next: check the registry's name")
        ),
        "not trusted": Case(
            (f"{faulty.secret.host}#a/b",), (image_failed, "its certificate is not trusted", "next:")
        ),
        "elsewhere": Case(
            ("ubuntu:elsewhere",), (image_failed, "it is not there for linux/", "there are: linux/s390x")
        ),
        "without ./": Case(("wrong.auth",), (image_failed, "say --container-image=./wrong.auth")),
        "wrong password": Case(
            (f"{faulty.closed.host}#a/b",), (image_failed, f"{faulty.closed.host}: ", "wrong.auth", "next: ")
        ),
    }
    forget = "enroot cache prune --all --all-users --force; rm -rf /home/*/.cache/enroot"
    containers.cluster.jail("sh", "-c", forget).ok()
    said = tried(containers, cases, f"-D/home/{containers.user}", **faulty.settings, **wrong)
    for name, case in cases.items():
        check(name, said[name], case.lines)
    plain = tried(
        containers, {"plain": Case((f"{host}#user/repo",), ())}, CONTAINERS_REGISTRIES_CONF="/dev/null"
    )
    check("plain", plain["plain"], (image_failed, "it speaks plain http, not TLS", "next: "))
    faulty.proxy.faults.clear()
    assert containers.leftovers() == []


def test_a_full_disk_is_told_before_anything_is_fetched(containers: Containers, faulty: Hub) -> None:
    """/dev of a job has 1 MiB, and root may write there"""
    places = {"XDG_DATA_HOME": "/dev/x", "XDG_CACHE_HOME": "/dev/x", "ENROOT_SHARED_CACHE_PATH": ""}
    layer = faulty.image.layers[0].digest
    faulty.proxy.log.clear()
    done = containers.run("--container-image=ubuntu:24.04", "true", user="root", **faulty.settings, **places)
    check(
        "full",
        done.err,
        ("failed to import", "there is no room for the image: it needs at least 2", "are free"),
    )
    assert faulty.proxy.count(f"GET .*{layer}") == 0
    done = containers.run(
        f"--container-image={IMAGE}", "--container-name=full", "true", user="root", XDG_DATA_HOME="/dev/x"
    )
    check(
        "unpacked",
        done.err,
        ("failed to create container filesystem", "there is no room", "1.0 MiB free; the image needs"),
    )


def test_names_of_images(containers: Containers, faulty: Hub) -> None:
    """Docker Hub's by a mirror, a registry's by its name, with tag, digest or both, an index, as a user"""
    host, digest = faulty.proxy.host, faulty.image.digest
    # The one who is named comes second.
    accounts = "".join(
        f"machine {faulty.closed.host} login {login} password {password}\n"
        for login, password in (("other", "wrong"), (USER, PASSWORD))
    )
    write = "umask 077; mkdir -p ~/.config/enroot && cat > ~/.config/enroot/.credentials"
    containers.cluster.jail("bash", "-lc", write, user=containers.user, stdin=accounts).ok()
    names = {
        "ubuntu": "docker",
        "ubuntu:24.04": "docker",
        "library/ubuntu:24.04": "docker",
        "docker.io#library/ubuntu": "docker",
        "docker://ubuntu:index": "docker",
        f"ubuntu@{digest}": "docker",
        f"ubuntu:24.04@{digest}": "docker",
        "user/repo:oci": "oci",
        f"{host}#user/repo": "docker",
        f"{host}/user/repo:oci": "oci",
        f"{USER}@{faulty.closed.host}#a/b": "docker",
    }
    try:
        said = tried(
            containers,
            {name: Case((name,), (), "sh -c 'echo kind $KIND'") for name in names},
            **faulty.settings,
        )
        wrong = {name: text for name, text in said.items() if f"kind {names[name]}\n" not in text}
        assert wrong == {}
        # What took a password is for nobody else.
        shared = containers.cluster.root / "var/cache/enroot/users"
        records = [path.read_text() for path in shared.glob("*/images/*/*") if path.name != "image.sqsh"]
        assert records
        assert not [text for text in records if faulty.closed.host in text]
    finally:
        (home(containers.cluster, containers.user) / ".config/enroot/.credentials").unlink()
