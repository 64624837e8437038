# SPDX-License-Identifier: Apache-2.0
"""Pushes to a real registry: what arrives there, and what is attached to it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cellblock.events import Event, Events, Message, SubjectState
from cellblock.oci.layout import Layout
from cellblock.oci.model import (
    INDEX,
    Index,
    Platform,
)
from cellblock.oci.push import push
from cellblock.oci.registry import (
    Denied,
    Registry,
)
from cellblock.oci.registry.client import fallback_tag
from tests.integration.push.pushing import LARGE, add, attach, content, image, pulled, send, skopeo_sees
from tests.integration.registry import RunningRegistry, get
from tests.integration.registry_proxy import Fault, Proxy

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
