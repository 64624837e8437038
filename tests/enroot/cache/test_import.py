# SPDX-License-Identifier: Apache-2.0
"""`enroot import` of a registry's images through the cache, the requests counted by the registry itself."""

from __future__ import annotations

import dataclasses
import http.client
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.enroot.cache.conftest import User, make_user, sha256
from tests.enroot.registry.images import Image, Pusher, make_image, make_index
from tests.ports import free_port

IMPORTERS = int(os.environ.get("CELLBLOCK_CACHE_IMPORTERS", "30"))


@dataclass(frozen=True)
class Registry:
    """One that writes down each request."""

    host: str
    log: Path
    process: subprocess.Popen[bytes]

    def requests(self) -> list[str]:
        """What was asked for since the last call: "HEAD manifests 1", "GET blobs sha256:..."."""
        text = self.log.read_text()
        self.log.write_text("")
        found = re.findall(r'"(GET|HEAD) /v2/\S+?/(manifests|blobs)/(\S+) HTTP', text)
        return [" ".join(each) for each in found]

    def uri(self, name: str) -> str:
        return f"docker://{self.host}/{name}"

    def push(self, name: str, image: Image) -> Image:
        path, _, tag = name.partition(":")
        pushed = Pusher(f"http://{self.host}", path).image(image, tag)
        self.requests()
        return pushed


@pytest.fixture
def registry(base: Path) -> Iterator[Registry]:
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed: `python3 build.py test` installs it")
    host = f"127.0.0.1:{free_port()}"
    log = base / "registry.log"
    configuration = {
        "version": "0.1",
        "log": {"level": "error", "accesslog": {"disabled": False}},
        "storage": {"filesystem": {"rootdirectory": str(base / "storage")}},
        "http": {"addr": host},
    }
    (base / "registry.yml").write_text(yaml.safe_dump(configuration))
    with log.open("ab") as out:
        process = subprocess.Popen([program, "serve", base / "registry.yml"], stdout=out, stderr=out)
    deadline = time.monotonic() + 60
    while "listening" not in log.read_text() and not _answers(host):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    yield Registry(host, log, process)
    process.terminate()
    process.wait()


def _answers(host: str) -> bool:
    try:
        http.client.HTTPConnection(host, timeout=1).request("GET", "/v2/")
    except OSError:
        return False
    return True


@pytest.fixture(scope="session")
def program(importer_build: Path) -> Path:
    """enroot-image, which does what `enroot import` says."""
    return importer_build / "enroot-image"


@dataclass(frozen=True)
class Importer(User):
    """The same accounts and stores, and the real program."""

    def imported(
        self, uri: str, name: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        done = self("import", "-o", name, uri, env=env)
        assert done.returncode == 0, done.stderr
        return done


def importer(user: User, program: Path) -> Importer:
    copy = user.base / "enroot-image"
    if not copy.exists():
        shutil.copy(program, copy)
    return Importer(copy, user.base, user.account, user.shared, {"ENROOT_ALLOW_HTTP": "yes", **user.settings})


@pytest.fixture
def user(user: User, program: Path) -> Importer:
    return importer(user, program)


def test_a_second_import_is_one_head(user: Importer, registry: Registry) -> None:
    image = registry.push("lab/x:1", make_image((100_000, 50_000)))
    user.imported(registry.uri("lab/x:1"), "a.sqsh")
    asked = registry.requests()
    assert asked.count("HEAD manifests 1") == 1
    assert sorted(each for each in asked if "blobs" in each) == sorted(
        f"GET blobs {blob.digest}" for blob in (image.config, *image.layers)
    )
    done = user.imported(registry.uri("lab/x:1"), "b.sqsh")
    assert "is in the cache" in done.stderr
    assert registry.requests() == ["HEAD manifests 1"]
    assert sha256(user.home / "a.sqsh") == sha256(user.home / "b.sqsh")
    assert (
        "etc/rc"
        in subprocess.run(["unsquashfs", "-l", user.home / "b.sqsh"], capture_output=True, text=True).stdout
    )


def test_a_digest_is_asked_nothing(user: Importer, registry: Registry) -> None:
    image = registry.push("lab/x:1", make_image((1000,)))
    uri = registry.uri(f"lab/x@{image.digest}")
    user.imported(uri, "a.sqsh")
    registry.requests()
    user.imported(uri, "b.sqsh")
    assert registry.requests() == []


def test_a_tag_that_moved_is_imported_anew(user: Importer, registry: Registry) -> None:
    registry.push("lab/x:1", make_image((1000,)))
    user.imported(registry.uri("lab/x:1"), "a.sqsh")
    registry.push("lab/x:1", make_image((1000, 2000)))
    done = user.imported(registry.uri("lab/x:1"), "b.sqsh")
    assert "Importing" in done.stderr
    assert sha256(user.home / "a.sqsh") != sha256(user.home / "b.sqsh")


def test_options_and_architectures_are_other_images(user: Importer, registry: Registry) -> None:
    machines = {f"linux/{name}": make_image((1000,), architecture=name) for name in ("amd64", "arm64")}
    pusher = Pusher(f"http://{registry.host}", "lab/x")
    for image in machines.values():
        pusher.image(image)
    pusher.manifest(make_index(machines), "1")
    for architecture in ("amd64", "arm64", "amd64"):
        name = f"{architecture}.sqsh"
        (user.home / name).unlink(missing_ok=True)
        done = user("import", "-a", architecture, "-o", name, registry.uri("lab/x:1"))
        assert done.returncode == 0, done.stderr
    assert "is in the cache" in done.stderr
    done = user(
        "import",
        "-a",
        "amd64",
        "-o",
        "zstd.sqsh",
        registry.uri("lab/x:1"),
        env={"ENROOT_SQUASH_OPTIONS": "-comp zstd -Xcompression-level 1"},
    )
    assert "Importing" in done.stderr
    assert user("cache", "ls", "--json").stdout.count('"kind": "image"') == 3


def test_layers_that_two_images_share_are_fetched_once(user: Importer, registry: Registry) -> None:
    registry.push("lab/x:1", make_image((100_000, 1000)))
    second = registry.push("lab/x:2", make_image((100_000, 1000, 500)))
    user.imported(registry.uri("lab/x:1"), "a.sqsh")
    registry.requests()
    user.imported(registry.uri("lab/x:2"), "b.sqsh")
    blobs = [each for each in registry.requests() if "blobs" in each]
    assert sorted(blobs) == sorted(f"GET blobs {blob.digest}" for blob in (second.config, second.layers[-1]))
    nothing = dataclasses.replace(user, settings={**user.settings, "ENROOT_CACHE_LAYERS": "no"})
    nothing("cache", "prune", "--all")
    nothing.imported(registry.uri("lab/x:2"), "c.sqsh")
    assert sha256(user.home / "b.sqsh") == sha256(user.home / "c.sqsh")
    assert user("cache", "verify").returncode == 0


def damage_blob(store: Path, image: Image, number: int) -> None:
    """Other bytes in the middle of a layer of the cache."""
    blob = store / "blobs" / image.layers[number].digest.removeprefix("sha256:")
    mode = blob.stat().st_mode
    blob.chmod(0o600)
    with blob.open("r+b") as file:
        file.seek(150_000)
        file.write(b"other bytes")
    blob.chmod(mode)


@pytest.mark.parametrize("damage", ["first", "last"])
def test_a_damaged_layer_of_the_cache_is_fetched_anew(
    user: Importer, registry: Registry, damage: str
) -> None:
    image = registry.push("lab/x:1", make_image((300_000, 200_000)))
    user.imported(registry.uri("lab/x:1"), "a.sqsh")
    for entry in (user.store / "images").iterdir():
        shutil.rmtree(entry)
    damage_blob(user.store, image, 0 if damage == "first" else 1)
    done = user.imported(registry.uri("lab/x:1"), "b.sqsh")
    assert "is damaged and is removed" in done.stderr
    assert "[ERROR]" not in done.stderr
    assert sha256(user.home / "a.sqsh") == sha256(user.home / "b.sqsh")
    assert user("cache", "verify").returncode == 0


def test_offline_takes_what_there_is(user: Importer, registry: Registry) -> None:
    registry.push("lab/x:1", make_image((1000,)))
    user.imported(registry.uri("lab/x:1"), "a.sqsh")
    registry.process.kill()
    registry.process.wait()
    offline = {"ENROOT_CACHE_OFFLINE": "yes"}
    user.imported(registry.uri("lab/x:1"), "b.sqsh", env=offline)
    done = user("import", "-o", "c.sqsh", registry.uri("lab/x:2"), env=offline)
    assert (done.returncode, "was not imported before" in done.stderr) == (1, True)
    assert user("import", "-o", "d.sqsh", registry.uri("lab/x:1")).returncode == 1


def test_get_prints_a_path_that_can_be_run(user: Importer, registry: Registry) -> None:
    registry.push("lab/x:1", make_image((1000,)))
    first = user("cache", "get", registry.uri("lab/x:1"))
    assert first.returncode == 0, first.stderr
    path = Path(first.stdout.strip())
    assert path.read_bytes()[:4] == b"hsqs"
    registry.requests()
    assert user("cache", "get", registry.uri("lab/x:1")).stdout == first.stdout
    assert registry.requests() == ["HEAD manifests 1"]
    assert user("cache", "get", "docker-archive:nothing.tar").returncode == 1


def test_many_imports_one_download(user: Importer, registry: Registry) -> None:
    """The full count, 200: CELLBLOCK_CACHE_IMPORTERS=200."""
    image = registry.push("lab/x:1", make_image((3_000_000, 1_000_000)))
    running = [user.popen("import", "-o", f"{i}.sqsh", registry.uri("lab/x:1")) for i in range(IMPORTERS)]
    results = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0] * IMPORTERS, results
    asked = registry.requests()
    assert sorted(each for each in asked if "blobs" in each and image.config.digest not in each) == sorted(
        f"GET blobs {blob.digest}" for blob in image.layers
    )


def test_users_of_a_node_download_a_layer_once_and_trust_only_root(
    producer: Path, base: Path, accounts: tuple[str, str], program: Path, registry: Registry
) -> None:
    shared = base / "shared"
    root, a, b = (importer(make_user(producer, base, name, shared), program) for name in (None, *accounts))
    assert root("cache", "init").returncode == 0
    image = registry.push("lab/x:1", make_image((500_000, 100_000)))
    layers = {f"GET blobs {blob.digest}" for blob in image.layers}
    a.imported(registry.uri("lab/x:1"), "a.sqsh")
    assert layers <= set(registry.requests())
    # b makes the image itself, of layers that a has and b checks.
    done = b.imported(registry.uri("lab/x:1"), "b.sqsh")
    assert "Importing" in done.stderr
    assert not layers & set(registry.requests())
    # What a puts there under a false name costs b a download.
    for blob in (a.shared_store / "blobs").iterdir():
        blob.chmod(0o644)
        blob.write_bytes(bytes(blob.stat().st_size))
    shutil.rmtree(b.shared_store)
    done = b.imported(registry.uri("lab/x:1"), "c.sqsh")
    assert "not what its name says" in done.stderr
    assert layers <= set(registry.requests())
    assert sha256(b.home / "b.sqsh") == sha256(b.home / "c.sqsh")
    # What root has, all have.
    root.imported(registry.uri("lab/x:1"), "r.sqsh")
    shutil.rmtree(b.shared_store)
    assert "is in the cache" in b.imported(registry.uri("lab/x:1"), "d.sqsh").stderr


def test_a_full_cache_fails_no_import(user: Importer, registry: Registry) -> None:
    if os.geteuid():
        pytest.skip("a small file system takes root to mount it")
    registry.push("lab/x:1", make_image((3_000_000,)))
    user.store.mkdir(parents=True, mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "tmpfs", user.store], check=True)
    try:
        done = user.imported(registry.uri("lab/x:1"), "a.sqsh")
        assert "[WARN] " in done.stderr
        assert "no room left in the cache" in done.stderr
        assert "[ERROR]" not in done.stderr
        assert (user.home / "a.sqsh").stat().st_size > 3_000_000
        assert list((user.store / "drafts").iterdir()) == []
    finally:
        subprocess.run(["umount", user.store], check=True)


def test_load_takes_layers_of_the_cache(user: Importer, registry: Registry) -> None:
    image = registry.push("lab/x:1", make_image((100_000, 1000)))
    user.imported(registry.uri("lab/x:1"), "a.sqsh")
    registry.requests()
    done = user("load", "-n", "x", registry.uri("lab/x:1"))
    assert done.returncode == 0, done.stderr
    assert not {f"GET blobs {blob.digest}" for blob in image.layers} & set(registry.requests())
    assert len((user.home / ".local/share/enroot/x/file0").read_bytes()) == 100_000
    user("cache", "prune", "--all")
    assert user("load", "-n", "y", registry.uri("lab/x:1")).returncode == 0
    assert user("cache", "ls").stdout.count("\nblob ") >= 2


@pytest.mark.parametrize("damage", ["first", "last"])
def test_load_does_without_a_damaged_layer(user: Importer, registry: Registry, damage: str) -> None:
    image = registry.push("lab/x:1", make_image((300_000, 200_000)))
    user.imported(registry.uri("lab/x:1"), "a.sqsh")
    damage_blob(user.store, image, 0 if damage == "first" else 1)
    done = user("load", "-n", "x", registry.uri("lab/x:1"))
    assert done.returncode == 0, done.stderr
    assert "is damaged and is removed" in done.stderr
    assert "[ERROR]" not in done.stderr
    data = user.home / ".local/share/enroot"
    assert [path.name for path in data.iterdir()] == ["x"]
    assert sorted(path.name for path in (data / "x").glob("file*")) == ["file0", "file1"]
    assert user("cache", "verify").returncode == 0


def test_a_damaged_layer_of_root_is_done_without(
    producer: Path, base: Path, accounts: tuple[str, str], program: Path, registry: Registry
) -> None:
    shared = base / "shared"
    root, a = (importer(make_user(producer, base, name, shared), program) for name in (None, accounts[0]))
    assert root("cache", "init").returncode == 0
    image = registry.push("lab/x:1", make_image((300_000, 200_000)))
    root.imported(registry.uri("lab/x:1"), "r.sqsh")
    for entry in (root.shared_store / "images").iterdir():
        shutil.rmtree(entry)
    damage_blob(root.shared_store, image, 1)
    done = a.imported(registry.uri("lab/x:1"), "a.sqsh")
    assert "its owner can remove it: enroot cache verify --repair" in done.stderr
    assert "[ERROR]" not in done.stderr
    assert sha256(a.home / "a.sqsh") == sha256(root.home / "r.sqsh")


def test_an_image_is_held_for_the_command_that_runs_it(user: Importer, registry: Registry) -> None:
    registry.push("lab/x:1", make_image((1000,)))
    uri = registry.uri("lab/x:1")
    script = f'{user.program} cache prune --all 2> /dev/null; head -c 4 "$ENROOT_IMAGE"; exit 7'
    done = user("cache", "get", uri, "sh", "-c", script)
    assert (done.returncode, done.stdout) == (7, "hsqs")
    path = Path(user("cache", "get", uri).stdout.strip())
    user("cache", "prune", "--all")
    assert not path.exists()
    done = user("cache", "get", "--", uri, "no-such-program", "--help")
    assert (done.returncode, "no-such-program: cannot be run" in done.stderr) == (127, True)


def test_more_layers_than_files_may_be_open(user: Importer, registry: Registry) -> None:
    """The soft limit is raised; where the hard one is low too, the cache does without some layers."""
    registry.push("lab/x:1", make_image((10,) * 50))
    expected = None
    for limit in ("100:4096", "220:220"):
        user("cache", "prune", "--all")
        name = f"{limit}.sqsh"
        command = ["prlimit", f"--nofile={limit}", "--", str(user.program)]
        done = subprocess.run(
            [*command, "import", "-o", name, registry.uri("lab/x:1")],
            env=user.environment(),
            cwd=user.home,
            capture_output=True,
            text=True,
        )
        assert (done.returncode, "[WARN]" in done.stderr) == (0, False), done.stderr
        assert expected in (None, sha256(user.home / name))
        expected = sha256(user.home / name)


def test_imports_killed_at_any_moment(user: Importer, registry: Registry) -> None:
    registry.push("lab/x:1", make_image((400_000, 300_000)))
    for i in range(10):
        process = user.popen("import", "-o", f"k{i}.sqsh", registry.uri("lab/x:1"))
        time.sleep(0.006 * i)
        process.kill()
        process.communicate()
        if i % 2:
            user("cache", "prune", "--all")
    user.imported(registry.uri("lab/x:1"), "after.sqsh")
    assert user("cache", "verify").returncode == 0
    assert list((user.store / "drafts").iterdir()) == list((user.store / "locks").iterdir()) == []
    assert list(user.home.glob(".*enroot*")) == []
