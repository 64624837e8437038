# SPDX-License-Identifier: Apache-2.0
"""What apt resolves, from archives that the tests make."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from dataclasses import replace
from email.utils import parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cellblock.errors import CellblockError, DefinitionError
from cellblock.events import Event, Events, SubjectState
from cellblock.lock import apt_root
from cellblock.lock.apt_root import AptRoot
from cellblock.lock.archives import PackageArchive
from cellblock.lock.model import Lock
from cellblock.lock.reachable_packages import Stanza, naming
from cellblock.variants import Variant
from tests.lock.conftest import Resolve
from tests.lock.versions import versions
from tests.packages.small_archive import SmallArchive


def names(lock: Lock, image: str) -> set[str]:
    return set(versions(lock, image))


def added(lock: Lock, image: str) -> set[str]:
    parent = lock.images[image].parent
    return names(lock, image) - (names(lock, parent) if parent else set())


def test_a_base_holds_the_essential_packages_apt_and_what_it_asks_for(
    small: SmallArchive, resolved: Resolve
) -> None:
    small.add("tool", Depends="lib", Recommends="extra")
    small.add("lib", Suggests="extra")
    small.add("extra")
    lock = resolved({"base": (None, ["tool"])})
    assert names(lock, "base") == {"dpkg", "libc", "apt", "tool", "lib"}


def test_it_is_told_that_the_lock_is_done(small: SmallArchive, resolved: Resolve, told: Events) -> None:
    events: list[Event] = []
    told.subscribe(events.append)
    small.add("tool")
    resolved({"base": (None, ["tool"])})
    assert isinstance(events[-1], SubjectState)
    assert (events[-1].subject, events[-1].state) == ("lock", "done")


def test_an_image_adds_to_its_parent_what_the_parent_lacks(small: SmallArchive, resolved: Resolve) -> None:
    small.add("lib")
    small.add("one", Depends="lib")
    small.add("two", Depends="lib, one")
    lock = resolved({"base": (None, []), "a": ("base", ["one"]), "b": ("a", ["two"]), "c": ("base", [])})
    assert added(lock, "a") == {"one", "lib"}
    assert added(lock, "b") == {"two"}
    assert added(lock, "c") == set()
    assert lock.packages["lib"].images == ("a", "b")
    assert lock.packages["libc"].images == ("base", "a", "b", "c")


def test_an_alternative_that_the_parent_holds_is_enough(small: SmallArchive, resolved: Resolve) -> None:
    small.add("first")
    small.add("second", Provides="service")
    small.add("wants-any", Depends="first | second")
    small.add("wants-service", Depends="service")
    lock = resolved(
        {
            "base": (None, []),
            "with": ("base", ["second"]),
            "on-it": ("with", ["wants-any", "wants-service"]),
            "without": ("base", ["wants-any"]),
        }
    )
    assert added(lock, "on-it") == {"wants-any", "wants-service"}
    assert added(lock, "without") == {"wants-any", "first"}


def test_a_locked_package_says_all_that_is_needed_to_fetch_it(small: SmallArchive, resolved: Resolve) -> None:
    package = small.add("tool", "1:2.0-3")
    locked = resolved({"base": (None, ["tool"])}).packages["tool"]
    assert locked == replace(package, images=("base",))
    assert locked.deb == "tool_1%3a2.0-3_amd64.deb"


def test_the_date_is_the_archive_s_and_not_the_clock_s(small: SmallArchive, resolved: Resolve) -> None:
    small.publish()
    first = resolved({"base": (None, [])}, small.archive)
    assert first == resolved({"base": (None, [])}, small.archive)
    release = (small.folder / "dists/trixie/Release").read_text()
    assert first.date.endswith("Z")
    assert f"{first.date[11:19]}" in release


def test_what_the_security_suite_carries_is_marked(
    small: SmallArchive, resolved: Resolve, tmp_path: Path
) -> None:
    security = SmallArchive(tmp_path / "security", suite="trixie-security", label="Test-Security")
    security.add("libc", "2.41+deb13u1")
    lock = resolved({"base": (None, [])}, small.publish().archive, security.publish().archive)
    libc, dpkg = lock.packages["libc"], lock.packages["dpkg"]
    assert (libc.version, libc.security, libc.archive) == ("2.41+deb13u1", True, 1)
    assert (dpkg.security, dpkg.archive, dpkg.origin) == (False, 0, "Test trixie/main")
    assert libc.origin == "Test trixie-security/main"


def test_a_flat_archive_is_one_more_line(small: SmallArchive, resolved: Resolve, tmp_path: Path) -> None:
    flat = SmallArchive(tmp_path / "flat")
    flat.add("slurm", "25.11")
    (flat.folder / "Packages").write_text("\n".join(flat.stanzas))
    line = PackageArchive((f"file:{flat.folder}",), "./", (), ("trusted=yes",))
    lock = resolved({"base": (None, ["slurm"])}, small.publish().archive, line)
    assert (lock.packages["slurm"].version, lock.packages["slurm"].archive) == ("25.11", 1)


def test_an_archive_with_compressed_lists_only_is_read(small: SmallArchive, resolved: Resolve) -> None:
    lock = resolved({"base": (None, [])}, small.publish(only_compressed=True).archive)
    assert names(lock, "base") == {"dpkg", "libc", "apt"}


def test_an_archive_not_meant_for_all_is_used_only_for_what_no_other_has(
    small: SmallArchive, resolved: Resolve, tmp_path: Path
) -> None:
    """As apt weighs backports, whatever part of the archive it is shown."""
    later = SmallArchive(tmp_path / "later", suite="trixie-backports")
    later.add("libc", "9")
    later.add("only-here")
    later.publish()
    release = later.folder / "dists/trixie-backports/Release"
    release.write_text(release.read_text().replace("Suite:", "NotAutomatic: yes\nSuite:"))
    lock = resolved({"base": (None, ["only-here"])}, small.publish().archive, later.archive)
    assert lock.packages["libc"].version == "2.41"
    assert "only-here" in lock.packages


def test_mirrors_of_one_archive_are_tried_in_turn(small: SmallArchive, resolved: Resolve) -> None:
    small.publish()
    archive = small.at("http://127.0.0.1:9/debian", f"file:{small.folder}")
    lock = resolved({"base": (None, [])}, archive)
    assert lock.archives == (archive,)
    assert names(lock, "base") == {"dpkg", "libc", "apt"}


def test_an_archive_that_no_mirror_serves_is_named(
    small: SmallArchive, resolved: Resolve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apt_root, "_RETRIES", 0)
    with pytest.raises(CellblockError, match=r"127\.0\.0\.1:9") as raised:
        resolved({"base": (None, [])}, small.at("http://127.0.0.1:9/a", "http://127.0.0.1:9/b"))
    assert "--mirror" in raised.value.hint


def test_an_expired_index_is_refused_with_its_date_and_the_way_to_accept_it(
    small: SmallArchive, resolved: Resolve, variant: Variant
) -> None:
    small.publish(valid_days=-3)
    release = (small.folder / "dists/trixie/Release").read_text()
    date = next(line for line in release.splitlines() if line.startswith("Valid-Until: "))
    until = parsedate_to_datetime(date.partition(" ")[2])
    with pytest.raises(CellblockError) as raised:
        resolved({"base": (None, [])}, small.archive)
    # apt says how long ago, in seconds: the minute may be the next one.
    assert f"valid until {until:%Y-%m-%d %H:}" in raised.value.message
    assert "`check_valid_until: false`" in raised.value.hint
    assert "--snapshot" in raised.value.hint
    accepting = replace(
        variant, distribution=variant.distribution.model_copy(update={"check_valid_until": False})
    )
    assert resolved({"base": (None, [])}, small.archive, variant=accepting).packages
    assert resolved({"base": (None, [])}, small.archive, snapshot="20261101T000000Z").packages
    small.publish(valid_days=3)
    assert resolved({"base": (None, [])}, small.archive).packages


def test_a_login_page_in_the_mirrors_place_is_called_that(
    small: SmallArchive, resolved: Resolve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(apt_root, "_RETRIES", 0)
    page = b"<html>Welcome to the hotel</html>"

    class Hotel(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Hotel) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            with pytest.raises(CellblockError) as raised:
                resolved({"base": (None, [])}, small.at(f"http://127.0.0.1:{server.server_port}/debian"))
        finally:
            server.shutdown()
    assert "login page" in raised.value.hint


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (400, "the mirror refuses (400 Bad Request): check its address, or name another with --mirror"),
        (403, "the mirror refuses (403 Forbidden): check its address, or name another with --mirror"),
        (404, "the mirror has no such archive (404 Not Found): check its address, or name another"),
        (429, "the mirror cannot answer now (429 Too Many Requests): run this again later, or name another"),
        (
            503,
            "the mirror cannot answer now (503 Service Unavailable): run this again later, or name another",
        ),
    ],
)
def test_what_a_mirror_answers_is_no_matter_of_keys(resolved: Resolve, status: int, advice: str) -> None:
    class Refuses(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(status)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refuses)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    uri = f"http://127.0.0.1:{server.server_address[1]}/debian"
    try:
        with pytest.raises(CellblockError, match="the package lists cannot be fetched") as caught:
            resolved({"base": (None, [])}, PackageArchive((uri,), "trixie", ("main",)))
    finally:
        server.shutdown()
        server.server_close()
    assert caught.value.hint.startswith(advice)


def test_an_archive_that_nobody_signed_is_refused_unless_it_is_trusted(
    small: SmallArchive, resolved: Resolve
) -> None:
    small.publish()
    with pytest.raises(CellblockError, match="not signed"):
        resolved({"base": (None, [])}, replace(small.archive, options=()))


@pytest.mark.parametrize(
    ("asked", "said"),
    [("nothing-like-it", "Unable to locate package nothing-like-it"), ("broken", "Depends: missing")],
)
def test_what_cannot_be_installed_is_named_with_image_file_and_line(
    asked: str, said: str, small: SmallArchive, resolved: Resolve
) -> None:
    small.add("broken", Depends="missing")
    with pytest.raises(DefinitionError) as raised:
        resolved({"base": (None, []), "worker": ("base", [asked])})
    assert raised.value.message.startswith("images/worker/image.yaml:2: image worker: ")
    assert said in raised.value.message
    assert "`packages` in images/worker/image.yaml:2" in raised.value.hint


def test_an_image_cannot_remove_what_its_parent_holds(small: SmallArchive, resolved: Resolve) -> None:
    small.add("ours")
    small.add("rival", Conflicts="ours")
    with pytest.raises(DefinitionError, match="image b: apt cannot install"):
        resolved({"base": (None, []), "a": ("base", ["ours"]), "b": ("a", ["rival"])})


def test_one_lock_holds_one_version_of_a_package(small: SmallArchive, resolved: Resolve) -> None:
    small.add("tool", "1")
    small.add("tool", "2")
    requests = {"base": (None, []), "a": ("base", ["tool=1"]), "b": ("base", ["tool"])}
    with pytest.raises(CellblockError, match="tool in two versions"):
        resolved(requests)
    assert resolved({**requests, "b": ("base", [])}).packages["tool"].version == "1"


def test_two_at_once_both_get_the_lock(small: SmallArchive, resolved: Resolve) -> None:
    small.publish()
    locks: list[Lock] = []
    threads = [
        threading.Thread(target=lambda: locks.append(resolved({"base": (None, [])}, small.archive)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(locks) == 3
    assert locks[0] == locks[1] == locks[2]


def test_a_new_state_of_the_archive_is_seen_at_once(small: SmallArchive, resolved: Resolve) -> None:
    assert resolved({"base": (None, [])}).packages["libc"].version == "2.41"
    small.add("libc", "2.42")
    assert resolved({"base": (None, [])}).packages["libc"].version == "2.42"


@pytest.mark.parametrize("seed", range(2))
def test_the_reachable_part_of_an_archive_gives_what_the_whole_gives(
    seed: int, small: SmallArchive, resolved: Resolve, tmp_path: Path
) -> None:
    """Random dependencies, alternatives, virtual packages and conflicts."""
    chance = random.Random(seed)
    count = 60
    stanzas = list(small.stanzas)
    for number in range(count):
        fields = {"Depends": [], "Provides": [], "Conflicts": []}  # type: dict[str, list[str]]
        for _ in range(chance.randrange(2)):
            first, second = chance.randrange(count), chance.randrange(count)
            fields["Depends"].append(
                chance.choice([f"p{first}", f"p{first} | p{second}", f"v{first % 9}", f"p{first} (>= 1)"])
            )
        if chance.random() < 0.3:
            fields["Provides"].append(f"v{chance.randrange(9)}")
        if chance.random() < 0.1:
            fields["Conflicts"].append(f"p{chance.randrange(count)}")
        lines = "".join(f"{name}: {', '.join(values)}\n" for name, values in fields.items() if values)
        stanzas.append(
            f"Package: p{number}\nVersion: {chance.randrange(3)}\nArchitecture: amd64\n"
            f"Maintainer: x\n{lines}Filename: pool/p{number}.deb\nSize: 1\nSHA256: {'0' * 64}\n"
        )
    small.stanzas = stanzas
    small.publish()
    named = naming([Stanza(stanza.encode(), 0) for stanza in stanzas]).decode() + "\n"
    everything = SmallArchive(tmp_path / "everything", stanzas=[named, *stanzas]).publish()
    whole = AptRoot(tmp_path / "whole", "debian", "amd64", [everything.archive])
    whole.update()
    expected = {}
    for number in range(0, count, 5):
        with suppress(CellblockError):  # conflicts, and dependencies on nothing
            chosen = whole.would_install([stanza.encode() for stanza in stanzas[:3]], "install", f"p{number}")
            expected[f"image{number}"] = (f"p{number}", {one.name for one in chosen})
    assert len(expected) > 1
    requests = {image: ("base", [package]) for image, (package, _) in expected.items()}
    lock = resolved({"base": (None, []), **requests}, small.archive)
    assert {image: added(lock, image) for image in expected} == {
        image: found for image, (_, found) in expected.items()
    }
