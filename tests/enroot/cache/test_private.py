# SPDX-License-Identifier: Apache-2.0
"""What took credentials stays with its user: each response decides for what it brought.

The registries are real, with htpasswd; the one in front of them gives some requests its own password, so
that to its clients a part of an image is anybody's.
"""

from __future__ import annotations

import base64
import http.client
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.enroot.cache.conftest import User, make_user
from tests.enroot.cache.test_import import Importer, damage_blob, importer
from tests.enroot.registry.images import Image, Pusher, make_image
from tests.integration.registry import PASSWORD, USER, RunningRegistry, running_registry

BASIC = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
NAME = "lab/secret"


@contextmanager
def running_front(registry: str, open_to_all: str, elsewhere: str = "") -> Iterator[str]:
    """A way to the registry, at an address of its own: requests whose "METHOD PATH" matches `open_to_all`
    need no password there. Blobs are redirected to `elsewhere`, if that is given."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            if re.search(open_to_all, f"{self.command} {self.path}"):
                headers["Authorization"] = BASIC
            upstream = http.client.HTTPConnection(registry, timeout=30)
            upstream.request(self.command, self.path, headers=headers)
            answer = upstream.getresponse()
            data = answer.read()
            moved = elsewhere and "/blobs/" in self.path and answer.status == 200
            self.send_response_only(307 if moved else answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                    self.send_header(name, value)
            if moved:
                self.send_header("Location", f"http://{elsewhere}{self.path}")
                data = b""
            head = self.command == "HEAD"
            self.send_header(
                "Content-Length", answer.getheader("Content-Length", "0") if head else str(len(data))
            )
            self.end_headers()
            self.wfile.write(data)
            upstream.close()

        def do_HEAD(self) -> None:
            self.do_GET()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@dataclass(frozen=True)
class Guarded:
    """An image behind a password, and users of a node: root, and two others."""

    registry: RunningRegistry
    image: Image
    root: Importer
    a: Importer
    b: Importer

    def log_in(self, user: Importer, host: str) -> None:
        """What `user` has for `host`, and for no other."""
        path = user.home / ".config/enroot/.credentials"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"machine {host} login {USER} password {PASSWORD}\n")
        path.chmod(0o600)
        if user.account:
            for each in (path, path.parent, path.parent.parent):
                shutil.chown(each, user.account, user.account)

    def uri(self, host: str | None = None, tag: bool = False) -> str:
        return f"docker://{host or self.registry.host}/{NAME}" + (":1" if tag else f"@{self.image.digest}")


@pytest.fixture
def guarded(base: Path, producer: Path, program: Path, accounts: tuple[str, str]) -> Iterator[Guarded]:
    shared = base / "shared"
    root, a, b = (importer(make_user(producer, base, name, shared), program) for name in (None, *accounts))
    assert root("cache", "init").returncode == 0
    with running_registry(base / "registry", password=True) as registry:
        image = make_image((300_000, 200_000))
        Pusher(f"http://{USER}:{PASSWORD}@{registry.host}", NAME).image(image, "1")
        yield Guarded(registry, image, root, a, b)


@pytest.fixture(scope="session")
def program(importer_build: Path) -> Path:
    return importer_build / "enroot-image"


def digits(image: Image) -> dict[str, str]:
    """The names that files of the cache have, and of what they are."""
    parts = {
        "manifest": image.manifest,
        "config": image.config,
        "bottom": image.layers[0],
        "top": image.layers[1],
    }
    return {each.digest.removeprefix("sha256:"): name for name, each in parts.items()}


def kept(store: Path, image: Image) -> set[str]:
    """The parts of the image in a store, and "image" for the whole."""
    names = digits(image)
    blobs = {names[path.name] for path in store.glob("blobs/*")}
    return blobs | {"image" for _ in store.glob("images/*")}


def readable_by_all(shared: Path) -> list[str]:
    """Content that any user can open, by all directories above it."""
    return [
        path.name
        for path in shared.glob("users/*/**/*")
        if path.is_file()
        and path.stat().st_size
        and path.stat().st_mode & 0o004
        and all(each.stat().st_mode & 0o001 for each in path.parents if each.is_relative_to(shared))
    ]


def forget_layers(store: Path, image: Image) -> None:
    for layer in image.layers:
        (store / "blobs" / layer.digest.removeprefix("sha256:")).unlink()


def work(user: User, how: str, uri: str, name: str) -> str:
    """`enroot import` or `enroot load`; what it said."""
    words = ("import", "-o", f"{name}.sqsh", uri) if how == "import" else ("load", "-n", name, uri)
    done = user(*words)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("how", ["import", "load"])
@pytest.mark.parametrize("tag", [True, False], ids=["tag", "digest"])
def test_all_of_a_private_image_is_ones_own(guarded: Guarded, how: str, tag: bool) -> None:
    guarded.log_in(guarded.a, guarded.registry.host)
    work(guarded.a, how, guarded.uri(tag=tag), "x")
    image = {"image"} if how == "import" else set()
    assert kept(guarded.a.store, guarded.image) == {"manifest", "config", "bottom", "top"} | image
    assert readable_by_all(guarded.a.shared_store.parents[1]) == []


@pytest.mark.parametrize("how", ["import", "load"])
def test_layers_that_alone_are_missing_are_ones_own(guarded: Guarded, how: str) -> None:
    """Manifest and configuration are in the cache, so that nothing is asked before the layers."""
    guarded.log_in(guarded.a, guarded.registry.host)
    work(guarded.a, "load", guarded.uri(), "x")
    forget_layers(guarded.a.store, guarded.image)
    work(guarded.a, how, guarded.uri(), "y")
    assert {"bottom", "top"} <= kept(guarded.a.store, guarded.image)
    assert readable_by_all(guarded.a.shared_store.parents[1]) == []


@pytest.mark.parametrize("how", ["import", "load"])
@pytest.mark.parametrize("number", [0, 1])
def test_what_comes_in_the_place_of_a_damaged_layer_is_ones_own(
    guarded: Guarded, how: str, number: int
) -> None:
    guarded.log_in(guarded.a, guarded.registry.host)
    work(guarded.a, "load", guarded.uri(), "x")
    damage_blob(guarded.a.store, guarded.image, number)
    said = work(guarded.a, how, guarded.uri(), "y")
    assert "is damaged and is removed" in said
    assert {"bottom", "top"} <= kept(guarded.a.store, guarded.image)
    assert readable_by_all(guarded.a.shared_store.parents[1]) == []


PARTS = {
    "manifests": {"manifest"},
    "config": {"config"},
    "all but the top layer": {"manifest", "config", "bottom"},
    "all": {"manifest", "config", "bottom", "top", "image"},
}


@pytest.mark.parametrize("how", ["import", "load"])
@pytest.mark.parametrize("tag", [True, False], ids=["tag", "digest"])
@pytest.mark.parametrize("part", PARTS)
def test_each_part_goes_where_its_own_request_says(guarded: Guarded, how: str, tag: bool, part: str) -> None:
    """The registry wants a password for some of the image. Layers of an image whose manifest or configuration
    took one are private whatever they took: the two say whose they are."""
    image = guarded.image
    pattern = {
        "manifests": "manifests",
        "config": f"/v2/$|{image.config.digest}",
        "all but the top layer": f"^(?!.*{image.layers[1].digest})",
        "all": "",
    }[part]
    with running_front(guarded.registry.host, pattern) as host:
        guarded.log_in(guarded.a, host)
        work(guarded.a, how, guarded.uri(host, tag), "x")
    everything = {"manifest", "config", "bottom", "top"} | ({"image"} if how == "import" else set())
    public = PARTS[part] & everything
    if part == "config":
        # By the time that it is asked for, the password is sent with each request.
        public = set()
    assert kept(guarded.a.shared_store, image) == public
    assert kept(guarded.a.store, image) == everything - public
    assert len(readable_by_all(guarded.a.shared_store.parents[1])) == len(public) + ("image" in public)


def test_a_redirect_from_where_a_password_was_wanted(guarded: Guarded, base: Path) -> None:
    """The storage that it leads to asks for none, and gets none; the layers are private all the same."""
    with (
        running_front(guarded.registry.host, "") as storage,
        running_front(guarded.registry.host, "manifests|" + guarded.image.config.digest, storage) as host,
    ):
        guarded.log_in(guarded.a, host)
        work(guarded.a, "load", guarded.uri(host), "x")
    assert {"bottom", "top"} <= kept(guarded.a.store, guarded.image)
    assert not {"bottom", "top"} & kept(guarded.a.shared_store, guarded.image)


def test_what_is_private_here_and_public_there_is_fetched_from_there(guarded: Guarded) -> None:
    """That a layer lies in one's own cache says nothing of whether others may have it."""
    guarded.log_in(guarded.root, guarded.registry.host)
    work(guarded.root, "load", guarded.uri(), "x")
    with running_front(guarded.registry.host, "") as host:
        uri = guarded.uri(host, tag=True)
        forget = guarded.root.store / "blobs"
        for part in (guarded.image.manifest, guarded.image.config):
            (forget / part.digest.removeprefix("sha256:")).unlink()
        work(guarded.root, "import", uri, "y")
        assert kept(guarded.root.shared_store, guarded.image) == {
            "manifest",
            "config",
            "bottom",
            "top",
            "image",
        }
        assert "is in the cache" in work(guarded.b, "import", uri, "z")


def test_the_name_of_a_private_image_is_not_in_what_others_read(guarded: Guarded) -> None:
    """All of it lies in the shared cache already, from a public place; that a has it from a private one is
    for a alone to see."""
    with running_front(guarded.registry.host, "") as public:
        work(guarded.a, "load", guarded.uri(public), "x")
    guarded.log_in(guarded.a, guarded.registry.host)
    for tag in (False, True):
        work(guarded.a, "import", guarded.uri(tag=tag), f"private-{tag}")
    assert kept(guarded.a.shared_store, guarded.image) == {"manifest", "config", "bottom", "top"}
    assert len(list(guarded.a.store.glob("images/*"))) == 2


@pytest.fixture
def far(guarded: Guarded) -> Iterator[Callable[[User], None]]:
    """Puts a user's own cache on another file system."""
    import subprocess

    mounted: list[Path] = []

    def mount(user: User) -> None:
        assert user.account
        user.store.mkdir(parents=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size=64m,mode=0700,uid={user.uid}", "tmpfs", user.store],
            check=True,
        )
        mounted.append(user.store)
        for path in (user.home / ".cache", user.store):
            shutil.chown(path, user.account, user.account)

    yield mount
    for path in mounted:
        subprocess.run(["umount", path], check=True)


def test_what_turns_out_private_moves_to_another_file_system(
    guarded: Guarded, far: Callable[[User], None]
) -> None:
    """The last layer alone takes a password: it and the image were begun where all would have had them."""
    far(guarded.a)
    with running_front(guarded.registry.host, f"^(?!.*{guarded.image.layers[1].digest})") as host:
        guarded.log_in(guarded.a, host)
        work(guarded.a, "import", guarded.uri(host, tag=True), "x")
        assert kept(guarded.a.store, guarded.image) == {"top", "image"}
        assert "is in the cache" in work(guarded.a, "import", guarded.uri(host, tag=True), "y")
    assert list(guarded.a.shared_store.glob("drafts/*")) == []
    assert guarded.a("cache", "verify").returncode == 0
