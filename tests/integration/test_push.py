"""Pushes to a real registry, over a network that fails in every way that it can be told to."""

from __future__ import annotations

import json
import random
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cellblock.errors import CellblockError
from cellblock.events import Event, Events, Message, SubjectState
from cellblock.oci.layout import Layout
from cellblock.oci.model import (
    CONFIG,
    EMPTY,
    INDEX,
    LAYER_TAR,
    Configuration,
    Descriptor,
    Index,
    Manifest,
    Platform,
)
from cellblock.oci.model import digest_of_bytes as digest_of
from cellblock.oci.push import Item, Pushed, push
from cellblock.oci.registry import (
    ConnectionOptions,
    CredentialsMissing,
    Denied,
    RateLimited,
    Registry,
    RegistryError,
    RegistryFull,
    RegistryUnreachable,
    WrongDigest,
)
from cellblock.oci.registry.client import fallback_tag
from cellblock.oci.registry.download import blob_chunks
from tests.integration.registry import PASSWORD, USER, RunningRegistry, get, repository_of, running_registry
from tests.integration.registry_proxy import Fault, Proxy

# More than the client sends in one piece with the end of an upload, and than sockets hold.
LARGE = 6_000_000


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "layout")


@pytest.fixture
def path(request: pytest.FixtureRequest) -> str:
    return repository_of(request)


def content(seed: object, size: int = 1000) -> bytes:
    return random.Random(str(seed)).randbytes(size)


def add(layout: Layout, name: str, *layers: bytes, architecture: str = "amd64") -> Descriptor:
    blobs = tuple(layout.write(layer, LAYER_TAR) for layer in layers)
    configuration = Configuration(
        Platform("linux", architecture), tuple(blob.digest for blob in blobs), {"Labels": {"name": name}}
    )
    data = configuration.to_bytes()
    config = Descriptor(CONFIG, digest_of(data), len(data))
    return layout.add(Manifest(config, blobs), configuration, [name]).descriptor


def attach(layout: Layout, subject: Descriptor, text: str) -> Descriptor:
    empty, blob = layout.write(b"{}", EMPTY), layout.write(text.encode(), "text/plain")
    return layout.attach(
        Manifest(empty, (blob,), {"text": text}, replace(subject, annotations={}), "application/x-note")
    )


def send(layout: Layout, host: str, *items: Item, options: ConnectionOptions | None = None) -> list[Pushed]:
    return push(layout, Registry(host, options), items, Events())


def image(name: str, root: Descriptor, path: str, *tags: str) -> Item:
    return Item(name, root, path, tags or ("t",))


def pulled(host: str, path: str, tag: str, folder: Path) -> str:
    """The digest of what skopeo pulls, whole."""
    argv = ["skopeo", "copy", "--quiet", "--all", "--preserve-digests", "--src-tls-verify=false"]
    argv += [f"docker://{host}/{path}:{tag}", f"oci:{folder}:x"]
    subprocess.run(argv, check=True, capture_output=True)
    return Layout(folder).references()["x"].digest


def skopeo_sees(host: str, path: str, tag: str) -> str:
    argv = ["skopeo", "inspect", "--tls-verify=false", f"docker://{host}/{path}:{tag}"]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    return str(json.loads(done.stdout)["Digest"])


# -- what arrives --------------------------------------------------------------------------------------


def test_skopeo_pulls_what_was_pushed(
    layout: Layout, registry: RunningRegistry, path: str, tmp_path: Path
) -> None:
    root = add(layout, "a", content(1, LARGE), content(2), b"")
    (result,) = send(layout, registry.host, image("a", root, path, "one", "two"))
    assert result.sent > LARGE
    assert result.platforms == (Platform("linux", "amd64"),)
    assert pulled(registry.host, path, "one", tmp_path / "pulled") == root.digest
    assert skopeo_sees(registry.host, path, "two") == root.digest


def test_a_second_push_sends_nothing_and_asks_little(layout: Layout, proxy: Proxy, path: str) -> None:
    item = image("a", add(layout, "a", content(path, LARGE)), path)
    send(layout, proxy.host, item)
    proxy.seen.clear()
    (result,) = send(layout, proxy.host, item)
    assert (result.sent, result.mounted, result.moved) == (0, 0, ())
    # Is it a registry; is the manifest there; what does the tag name.
    assert [seen.method for seen in proxy.seen] == ["GET", "HEAD", "HEAD"]


def test_only_the_layer_that_is_new_is_sent(layout: Layout, proxy: Proxy, path: str) -> None:
    below, above = content(path, LARGE), content(path + "2")
    send(layout, proxy.host, image("a", add(layout, "a", below), path))
    proxy.seen.clear()
    (result,) = send(layout, proxy.host, image("a", add(layout, "b", below, above), path))
    assert result.present == LARGE
    assert proxy.uploaded() < LARGE
    assert result.moved == ("t",)


def test_a_layer_that_two_images_share_is_sent_once_and_mounted(
    layout: Layout, proxy: Proxy, path: str, tmp_path: Path
) -> None:
    shared = content(path, LARGE)
    items = [
        image(name, add(layout, name, shared, content(path + name)), f"{path}/{name}")
        for name in ("a", "b", "c")
    ]
    results = send(layout, proxy.host, *items)
    assert sum(result.mounted for result in results) == 2 * LARGE
    assert proxy.uploaded() < 2 * LARGE
    for item in items:
        assert pulled(proxy.host, item.repository, "t", tmp_path / item.name) == item.root.digest


def test_a_layer_is_mounted_from_a_repository_that_had_it_before(
    layout: Layout, proxy: Proxy, path: str
) -> None:
    item = image("a", add(layout, "a", content(path, LARGE)), f"{path}/new")
    send(layout, proxy.host, replace(item, repository=f"{path}/old"))
    proxy.seen.clear()
    registry = Registry(proxy.host)
    (result,) = push(layout, registry, [item], Events(), mount_from=[f"{path}/none", f"{path}/old"])
    assert result.mounted > LARGE
    assert proxy.uploaded() == 0


def test_no_tag_moves_when_one_of_the_images_cannot_be_pushed(
    layout: Layout, proxy: Proxy, path: str
) -> None:
    before = add(layout, "a", content(path))
    send(layout, proxy.host, image("a", before, f"{path}/a"))
    items = [image(n, add(layout, n, content(path + n)), f"{path}/{n}") for n in ("a", "b")]
    proxy.faults = [Fault(f"PUT .*{path}/b/manifests", times=99, status=403)]
    with pytest.raises(Denied, match="403"):
        send(layout, proxy.host, *items)
    assert skopeo_sees(proxy.host, f"{path}/a", "t") == before.digest


def test_all_platforms_of_an_index_are_pushed(
    layout: Layout, registry: RunningRegistry, path: str, tmp_path: Path
) -> None:
    members = tuple(
        replace(add(layout, arch, content(path + arch), architecture=arch), annotations={})
        for arch in ("amd64", "arm64")
    )
    root = layout.write(Index(members).to_bytes(), INDEX)
    layout.tag(root, ["both"])
    (result,) = send(layout, registry.host, image("both", root, path))
    assert [platform.architecture for platform in result.platforms] == ["amd64", "arm64"]
    assert pulled(registry.host, path, "t", tmp_path / "pulled") == root.digest


# -- what is attached ----------------------------------------------------------------------------------


def test_what_is_attached_to_an_image_goes_with_it_and_is_found_by_the_fallback_tag(
    layout: Layout, registry: RunningRegistry, path: str
) -> None:
    root = add(layout, "a", content(path))
    note = attach(layout, root, "note")
    signature = attach(layout, note, "signature of the note")
    (result,) = send(layout, registry.host, image("a", root, path))
    assert result.referrers == 2
    # Debian's docker-registry has no referrers API: anybody's client reads this tag.
    index = json.loads(
        get(f"http://{registry.host}/v2/{path}/manifests/{fallback_tag(root.digest)}", {"Accept": INDEX})
    )
    assert [(each["digest"], each["artifactType"]) for each in index["manifests"]] == [
        (note.digest, "application/x-note")
    ]
    repository = Registry(registry.host).repository(path)
    assert [each.digest for each in repository.referrers(note.digest)] == [signature.digest]


def test_what_is_attached_later_is_added_to_what_was(
    layout: Layout, registry: RunningRegistry, path: str
) -> None:
    root = add(layout, "a", content(path))
    notes = []
    for text in ("first", "second"):
        notes.append(attach(layout, root, text).digest)
        send(layout, registry.host, image("a", root, path))
    found = Registry(registry.host).repository(path).referrers(root.digest)
    assert [each.digest for each in found] == notes


def test_a_push_that_ended_before_the_index_of_referrers_is_completed_by_the_next(
    layout: Layout, proxy: Proxy, path: str
) -> None:
    root = add(layout, "a", content(path))
    note = attach(layout, root, "note")
    proxy.faults = [Fault(f"PUT .*manifests/{fallback_tag(root.digest)}", status=403)]
    with pytest.raises(Denied):
        send(layout, proxy.host, image("a", root, path))
    send(layout, proxy.host, image("a", root, path))
    found = Registry(proxy.host).repository(path).referrers(root.digest)
    assert [each.digest for each in found] == [note.digest]


# -- networks that fail --------------------------------------------------------------------------------

BREAKS = {
    "dropped amid a layer": Fault("PATCH", drop_upload=2_000_000),
    "dropped before anything arrived": Fault("PATCH", times=2, drop_upload=0),
    "the answer to a layer is lost": Fault("PATCH", lose_answer=True),
    "the answer to the end of a layer is lost": Fault("PUT .*uploads", lose_answer=True),
    "the answer to the beginning is lost": Fault("POST .*uploads", lose_answer=True),
    "the answer to the manifest is lost": Fault("PUT .*manifests", lose_answer=True),
    "500 to a layer": Fault("PATCH", times=2, status=500),
    "503 to everything": Fault("", times=3, status=503, headers={"Retry-After": "0"}),
    "429 with a time": Fault("PATCH", status=429, headers={"Retry-After": "1"}),
    "a limit on the size of requests": Fault("PATCH", times=2, status=413),
    "an upload that is forgotten": Fault("PATCH", status=404),
    "a range that does not fit": Fault("PATCH", status=416),
    "a layer that is changed on its way": Fault("PATCH", corrupt_upload=True),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_push_gets_through(name: str, layout: Layout, proxy: Proxy, path: str, tmp_path: Path) -> None:
    root = add(layout, "a", content(path, LARGE))
    fault = replace(BREAKS[name])
    proxy.faults = [fault]
    send(layout, proxy.host, image("a", root, path))
    assert fault.times == 0, "the fault happened"
    assert pulled(proxy.host, path, "t", tmp_path / "pulled") == root.digest


def test_a_layer_goes_on_where_the_connection_broke(
    layout: Layout, proxy: Proxy, path: str, tmp_path: Path
) -> None:
    root = add(layout, "a", content(path, LARGE))
    proxy.faults = [Fault("PATCH", times=2, drop_upload=2_500_000, keep=True)]
    send(layout, proxy.host, image("a", root, path))
    ranges = [seen.headers["Content-Range"] for seen in proxy.seen if seen.method == "PATCH"]
    assert ranges == [f"{first}-{LARGE - 1}" for first in (0, 2_500_000, 5_000_000)]
    assert pulled(proxy.host, path, "t", tmp_path / "pulled") == root.digest


def test_all_wait_for_a_registry_that_asked_for_it_and_the_person_is_told(
    layout: Layout, proxy: Proxy, path: str
) -> None:
    proxy.faults = [Fault("HEAD .*blobs", status=429, headers={"Retry-After": "1"})]
    told: list[str] = []
    item = image("a", add(layout, "a", content(path)), path)
    push(layout, Registry(proxy.host, notice=told.append), [item], Events())
    assert "too many requests for now, until" in told[0]
    assert "trying again in 1 s" in told[0]


def test_a_limit_that_lasts_is_an_error_that_says_until_when(layout: Layout, proxy: Proxy, path: str) -> None:
    proxy.faults = [Fault("PATCH", times=99, status=429, headers={"Retry-After": "3600"})]
    with pytest.raises(RateLimited, match=r"429: too many requests for now, until \d\d:\d\d:\d\d UTC"):
        send(layout, proxy.host, image("a", add(layout, "a", content(path, LARGE)), path))
    assert proxy.count("PATCH") == 1


def test_what_is_changed_on_its_way_every_time_is_not_stored(layout: Layout, proxy: Proxy, path: str) -> None:
    proxy.faults = [Fault("PATCH", times=99, corrupt_upload=True)]
    with pytest.raises(RegistryError, match="digest"):
        send(layout, proxy.host, image("a", add(layout, "a", content(path, LARGE)), path))
    assert proxy.count("PATCH") == 3
    assert proxy.count("PUT .*manifests") == 0


def test_a_manifest_that_the_registry_calls_otherwise_is_an_error(
    layout: Layout, proxy: Proxy, path: str
) -> None:
    proxy.faults = [
        Fault("PUT .*manifests", status=201, headers={"Docker-Content-Digest": "sha256:" + "0" * 64})
    ]
    with pytest.raises(WrongDigest, match="the registry says sha256:000"):
        send(layout, proxy.host, image("a", add(layout, "a", content(path)), path))


def test_a_damaged_file_of_the_layout_is_named(layout: Layout, proxy: Proxy, path: str) -> None:
    root = add(layout, "a", content(path, LARGE))
    blob = layout.blob(layout.image("a").manifest.layers[0].digest)
    blob.write_bytes(content("other", LARGE))
    with pytest.raises(CellblockError, match=f"{blob}: its content has another digest"):
        send(layout, proxy.host, image("a", root, path))
    blob.write_bytes(content(path, LARGE))
    send(layout, proxy.host, image("a", root, path))


def test_a_failed_push_goes_on_with_what_lacks(layout: Layout, proxy: Proxy, path: str) -> None:
    item = image("a", add(layout, "a", *(content(f"{path}{n}", LARGE // 4) for n in range(4))), path)
    proxy.faults = [Fault("PUT .*manifests", status=403)]
    with pytest.raises(Denied):
        send(layout, proxy.host, item)
    proxy.seen.clear()
    (result,) = send(layout, proxy.host, item)
    assert result.sent == 0
    assert proxy.uploaded() == 0
    assert result.moved == ("t",)


def test_nobody_there_is_said_with_the_address(layout: Layout, path: str) -> None:
    with pytest.raises(RegistryUnreachable, match=r"127\.0\.0\.1:1: .*Connection refused"):
        send(
            layout,
            "127.0.0.1:1",
            image("a", add(layout, "a", b"x"), path),
            options=ConnectionOptions(attempts=1),
        )


def test_a_download_goes_on_where_it_broke(layout: Layout, proxy: Proxy, path: str) -> None:
    root = add(layout, "a", content(path, LARGE))
    send(layout, proxy.host, image("a", root, path))
    (layer,) = layout.image("a").manifest.layers
    proxy.faults = [Fault("GET .*blobs", times=2, drop_download=2_000_000)]
    repository = Registry(proxy.host).repository(path)
    assert b"".join(blob_chunks(repository, layer)) == content(path, LARGE)
    ranges = [seen.headers.get("Range") for seen in proxy.seen if "/blobs/sha256" in seen.path]
    assert len([each for each in ranges if each]) == 2


def test_a_download_that_is_changed_is_refused(layout: Layout, proxy: Proxy, path: str) -> None:
    send(layout, proxy.host, image("a", add(layout, "a", content(path)), path))
    (layer,) = layout.image("a").manifest.layers
    proxy.faults = [Fault("GET .*blobs", times=99, corrupt_download=True)]
    with pytest.raises(WrongDigest, match=layer.digest):
        list(blob_chunks(Registry(proxy.host).repository(path), layer))


# -- registries that refuse ----------------------------------------------------------------------------


def test_a_full_registry_is_named_and_the_next_run_carries_on(
    layout: Layout, tmp_path: Path, path: str
) -> None:
    root = add(layout, "a", content(path), content(path + "large", LARGE))
    storage = tmp_path / "small"
    storage.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(storage)]
    subprocess.run(mount, check=True)
    try:
        with running_registry(tmp_path / "full", storage=storage) as full:
            with pytest.raises(RegistryFull, match="no room left"):
                send(layout, full.host, image("a", root, path))
            subprocess.run(["mount", "-o", "remount,size=64m", str(storage)], check=True)
            send(layout, full.host, image("a", root, path))
            assert pulled(full.host, path, "t", tmp_path / "pulled") == root.digest
    finally:
        subprocess.run(["umount", str(storage)], check=True)


def test_a_read_only_registry_says_so(layout: Layout, tmp_path: Path, path: str) -> None:
    root = add(layout, "a", content(path))
    with (
        running_registry(tmp_path / "r", read_only=True) as registry,
        pytest.raises(RegistryError, match=r"405.*read-only") as caught,
    ):
        send(layout, registry.host, image("a", root, path))
    assert caught.value.hint


def test_a_push_goes_through_the_proxy_of_the_environment(
    layout: Layout, proxy: Proxy, path: str, tmp_path: Path
) -> None:
    options = replace(environment(tmp_path, HTTP_PROXY=f"http://ada:se%3Asame@{proxy.host}"), plain_http=True)
    root = add(layout, "a", content(path, LARGE))
    send(layout, "registry.example:5000", image("a", root, path), options=options)
    assert skopeo_sees(proxy.host, path, "t") == root.digest
    assert {seen.headers["Host"] for seen in proxy.seen if seen.method == "PATCH"} == {
        "registry.example:5000"
    }
    assert {seen.headers["proxy-authorization"] for seen in proxy.seen if seen.method == "PATCH"} == {
        "Basic YWRhOnNlOnNhbWU="  # ada:se:same
    }


def test_a_registry_with_tls_is_believed_when_its_authority_is_known(
    layout: Layout, tmp_path: Path, path: str
) -> None:
    item = image("a", add(layout, "a", content(path)), path)
    certificate, key = self_signed(tmp_path)
    with running_registry(tmp_path / "r", certificate=(certificate, key)) as registry:
        with pytest.raises(RegistryError, match=r"its certificate is not trusted: self.signed") as caught:
            send(layout, registry.host, item)
        assert f"/etc/containers/certs.d/{registry.host}/ca.crt" in caught.value.hint
        with pytest.raises(RegistryError, match="HTTP request to an HTTPS server"):
            send(layout, registry.host, item, options=ConnectionOptions(plain_http=True))
        send(layout, registry.host, item, options=ConnectionOptions(ca=certificate))
        send(layout, registry.host, item, options=ConnectionOptions(verify_tls=False))


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, and its key."""
    certificate, key = folder / "registry.crt", folder / "registry.key"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    argv += ["-keyout", str(key), "-out", str(certificate), "-subj", "/CN=tests", "-days", "2"]
    argv += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(argv, check=True, capture_output=True)
    return certificate, key


# -- who asks ------------------------------------------------------------------------------------------


def environment(home: Path, **more: str) -> ConnectionOptions:
    return ConnectionOptions(environ={"HOME": str(home), "XDG_RUNTIME_DIR": str(home), **more})


def test_basic_authentication(layout: Layout, tmp_path: Path, path: str) -> None:
    item = image("a", add(layout, "a", content(path)), path)
    with running_registry(tmp_path / "r", password=True) as registry:
        with pytest.raises(CredentialsMissing) as caught:
            send(layout, registry.host, item, options=environment(tmp_path))
        assert registry.host in caught.value.message
        assert f"{tmp_path}/.docker/config.json (not there)" in caught.value.message
        wrong = environment(tmp_path, CELLBLOCK_REGISTRY_USER=USER, CELLBLOCK_REGISTRY_PASSWORD="wrong")
        with pytest.raises(Denied, match=rf"does not accept {USER} .*CELLBLOCK_REGISTRY_USER"):
            send(layout, registry.host, item, options=wrong)
        file = tmp_path / "auth.json"
        login = ["skopeo", "login", "--authfile", str(file), "--tls-verify=false", "-u", USER, "-p", PASSWORD]
        subprocess.run([*login, registry.host], check=True, capture_output=True)
        send(layout, registry.host, item, options=environment(tmp_path, REGISTRY_AUTH_FILE=str(file)))


def test_a_token_that_expires_amid_a_push_is_renewed(
    layout: Layout, proxy: Proxy, path: str, tmp_path: Path
) -> None:
    proxy.uses_of_a_token = 2
    root = add(layout, "a", content(path, LARGE), content(path + "2", LARGE))
    # One at a time: a token that ends by its uses could be used up by others before its first.
    registry = Registry(proxy.host, environment(tmp_path))
    push(layout, registry, [image("a", root, path)], Events(), jobs=1)
    assert len(proxy.tokens) > 3
    proxy.uses_of_a_token = None
    assert skopeo_sees(proxy.host, path, "t") == root.digest


def test_a_token_server_that_wants_credentials_is_named(
    layout: Layout, proxy: Proxy, path: str, tmp_path: Path
) -> None:
    proxy.uses_of_a_token = 10**6
    proxy.password = "Basic YWRhOnNlc2FtZQ=="  # ada:sesame
    item = image("a", add(layout, "a", content(path)), path)
    with pytest.raises(CredentialsMissing, match=r"token server .* wants to know who asks"):
        send(layout, proxy.host, item, options=environment(tmp_path))
    known = environment(tmp_path, CELLBLOCK_REGISTRY_USER=USER, CELLBLOCK_REGISTRY_PASSWORD=PASSWORD)
    send(layout, proxy.host, item, options=known)
    assert len(proxy.tokens) <= 3, "tokens are kept and used again"


def test_events_say_what_was_sent(layout: Layout, registry: RunningRegistry, path: str) -> None:
    seen: list[Event] = []
    events = Events()
    events.subscribe(seen.append)
    item = image("a", add(layout, "a", content(path, LARGE)), path)
    push(layout, Registry(registry.host), [item], events)
    push(layout, Registry(registry.host), [item], events)
    states = [(each.state, each.detail) for each in seen if isinstance(each, SubjectState)]
    assert [state for state, _ in states] == ["waiting", "running", "done", "waiting", "running", "cached"]
    assert states[2][1] == "6.0 MB sent, tagged t"
    assert not [each for each in seen if isinstance(each, Message)]
