# SPDX-License-Identifier: Apache-2.0
"""Images that one user imports again and again: found, shared by processes, trimmed, whole after kills."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import subprocess
import time
from pathlib import Path

import pytest

from tests.enroot.cache.conftest import User, sha256

KILLS = int(os.environ.get("CELLBLOCK_CACHE_KILLS", "25"))
IMPORTERS = int(os.environ.get("CELLBLOCK_CACHE_IMPORTERS", "60"))


def entries(user: User, *options: str) -> list[dict[str, object]]:
    done = user("cache", "ls", "--json", *options)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout)["entries"]
    return found


def names(user: User) -> set[str]:
    return {str(entry["reference"]).removeprefix("docker://test/") for entry in entries(user)}


def test_the_second_import_makes_nothing(user: User) -> None:
    assert user.image("x", "a.sqsh") == "made"
    assert user.image("x", "b.sqsh") == "found"
    assert user.made() == ["x"]
    assert sha256(user.home / "a.sqsh") == sha256(user.home / "b.sqsh")
    assert user.image("y") == "made"


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        (0o777, "everybody can write into the directory of ENROOT_CACHE_PATH"),
        (0o770, "others can write in it"),
    ],
)
def test_a_cache_is_ones_own_alone(user: User, mode: int, why: str) -> None:
    user.image("x")
    assert user.store.stat().st_mode & 0o777 == 0o700
    user.store.chmod(mode)
    done = user("image", "x", "64", "0", "-")
    assert done.stdout == "unusable\n"
    assert why in done.stderr


def test_switched_off_it_keeps_nothing(user: User) -> None:
    assert user.image("x", env={"ENROOT_CACHE_IMAGES": "no"}) == "unusable"
    assert not (user.store / "images").exists()


def test_what_decides_about_the_bytes_decides_about_the_entry(user: User) -> None:
    first, second = user.entry("x"), user.entry("y")
    assert first != second
    record = (first / "record").read_text()
    (first / "record").chmod(0o600)
    (first / "record").write_text((second / "record").read_text())
    done = user("image", "x", "256", "0", "-")
    assert done.stdout.startswith("made")
    assert "it is another image" in done.stderr
    assert (first / "record").read_text().splitlines()[:6] == record.splitlines()[:6]


@pytest.mark.parametrize("damage", ["cut", "written", "record", "gone"])
def test_what_was_changed_is_made_anew(user: User, damage: str) -> None:
    entry = user.entry("x")
    image, record = entry / "image.sqsh", entry / "record"
    for path in (image, record):
        path.chmod(0o644)
    if damage == "cut":
        os.truncate(image, 1000)
    elif damage == "written":
        with image.open("r+b") as file:
            file.write(b"other bytes")
    elif damage == "record":
        record.write_text(record.read_text()[:100])
    else:
        record.unlink()
    assert user.image("x") == "made"
    assert user.image("x") == "found"
    assert user("cache", "verify").returncode == 0


def test_links_copies_and_the_umask(user: User) -> None:
    entry = user.entry("x") / "image.sqsh"
    user.image("x", "link.sqsh")
    user.image("x", "copy.sqsh", env={"ENROOT_CACHE_LINK": "no"})
    closed = subprocess.run(
        ["sh", "-c", 'umask 077; exec "$@"', "sh", *user.command("image", "x", "64", "0", "closed.sqsh")],
        env=user.environment(),
        cwd=user.home,
        capture_output=True,
        text=True,
    )
    assert closed.returncode == 0, closed.stderr
    link, copy = user.home / "link.sqsh", user.home / "copy.sqsh"
    assert link.stat().st_ino == entry.stat().st_ino or link.stat().st_mode & 0o777 == 0o644  # a reflink
    assert link.stat().st_mode & 0o222 == 0 or link.stat().st_ino != entry.stat().st_ino
    assert copy.stat().st_ino != entry.stat().st_ino
    assert copy.stat().st_mode & 0o777 == 0o644
    assert (user.home / "closed.sqsh").stat().st_mode & 0o777 == 0o600
    assert sha256(copy) == sha256(link) == sha256(entry) == sha256(user.home / "closed.sqsh")


def test_a_hard_link_that_was_written_to_is_no_cache_entry_any_more(user: User) -> None:
    user.image("x", "mine.sqsh")
    mine = user.home / "mine.sqsh"
    mine.chmod(0o644)
    with mine.open("ab") as file:
        file.write(b"appended by mksquashfs")
    assert user.image("x", "again.sqsh") in ("made", "found")
    assert (user.home / "again.sqsh").stat().st_size == 256 * 1024
    assert mine.stat().st_size > 256 * 1024


def test_many_importers_one_import(user: User) -> None:
    """The full count, 200: CELLBLOCK_CACHE_IMPORTERS=200."""
    running = [user.popen("image", "x", "1024", "20", f"{i}.sqsh") for i in range(IMPORTERS)]
    results = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0] * IMPORTERS, results
    assert user.made() == ["x"]
    assert len({sha256(user.home / f"{i}.sqsh") for i in range(0, IMPORTERS, 10)}) == 1


def test_who_waits_is_told_and_takes_over_from_the_dead(user: User) -> None:
    first = user.popen("image", "x", "4096", "100", "-")
    assert first.stdout is not None
    assert first.stdout.readline() == "made\n"
    second = user.popen("image", "x", "256", "0", "-")
    assert second.stderr is not None
    told = second.stderr.readline()
    assert f"process {first.pid} on " in told
    assert " of 4.0 MiB (" in told
    assert told.endswith(" imports it\n")
    first.kill()
    first.communicate()
    out, _ = second.communicate(timeout=60)
    assert out.startswith("made")
    assert user.made() == ["x", "x"]


def test_patience_with_a_stopped_importer_ends(user: User) -> None:
    first = user.popen("image", "x", "2048", "50", "-")
    assert first.stdout is not None
    assert first.stdout.readline() == "made\n"
    first.send_signal(19)
    started = time.monotonic()
    done = user("image", "x", "64", "0", "-", env={"ENROOT_CACHE_PATIENCE": "1"})
    assert done.stdout.startswith("made")
    assert time.monotonic() - started > 0.9
    assert "does not advance" in done.stderr
    first.send_signal(18)
    _, err = first.communicate(timeout=60)
    assert first.returncode == 0, err
    assert user("cache", "verify").returncode == 0
    assert len(entries(user)) == 1


def test_killed_between_the_files_of_a_draft(user: User) -> None:
    user.image("x")
    for files in (["record"], ["image.sqsh"], ["image.sqsh", "record"], ["blob"], []):
        draft = user.store / "drafts" / "1-00"
        draft.mkdir()
        for name in files:
            (draft / name).touch()
        assert user("cache", "verify").returncode == 0
        assert list((user.store / "drafts").iterdir()) == []


def test_killed_at_any_moment(user: User) -> None:
    """The full count, 100: CELLBLOCK_CACHE_KILLS=100."""
    rng = random.Random(6)
    for i in range(KILLS):
        process = user.popen("image", f"k{i % 3}", "1024", "1", "out.sqsh")
        time.sleep(rng.uniform(0, 0.06))
        process.kill()
        process.communicate()
        if i % 3 == 2:
            user("cache", "prune", "--all")
    done = user("cache", "verify")
    assert done.returncode == 0, done.stderr
    for name in ("k0", "k1", "k2"):
        user.image(name, "out.sqsh", kib=1024)
    assert list((user.store / "drafts").rglob("*")) == []
    assert list((user.store / "locks").iterdir()) == []
    for folder in (user.store / "images").iterdir():
        assert sorted(path.name for path in folder.iterdir()) == ["image.sqsh", "record"]
    assert [path.name for path in user.home.glob(".*enroot*")] == []
    assert user("cache", "verify").returncode == 0


def test_prunes_killed_at_any_moment(user: User) -> None:
    rng = random.Random(7)
    for i in range(max(3, KILLS // 5)):
        for name in ("a", "b"):
            user.image(name, kib=64)
        process = user.popen("cache", "prune", "--all")
        time.sleep(rng.uniform(0, 0.008))
        process.kill()
        process.communicate()
        assert user("cache", "verify").returncode == 0, i
    user("cache", "prune", "--all")
    assert list((user.store / "images").iterdir()) == []


def age(user: User, entry: Path, seconds: int) -> None:
    """It was used that long ago, and made then."""
    then = time.time() - seconds
    os.utime(user.store / "used" / entry.name, (then, then))


def backdate(entry: Path, seconds: int) -> None:
    """As if it had been made that long ago: the record says so too."""
    image, record = entry / "image.sqsh", entry / "record"
    then = int(time.time() - seconds)
    os.utime(image, ns=(then * 10**9, then * 10**9))
    record.chmod(0o600)
    lines = [
        f"changed {then}.000000000" if line.startswith("changed ") else line
        for line in record.read_text().splitlines()
    ]
    record.write_text("\n".join(lines) + "\n")


def aged(user: User, *names: str) -> list[Path]:
    """Images, the first of them the longest unused."""
    found = []
    for i, name in enumerate(names):
        entry = user.entry(name, 1024)
        backdate(entry, 10000 * (len(names) - i))
        age(user, entry, 1000 * (len(names) - i))
        found.append(entry)
    return found


def test_what_was_used_least_recently_goes_first(user: User) -> None:
    aged(user, "a", "b", "c")
    assert user.image("a") == "found"
    limited = dataclasses.replace(user, settings={"ENROOT_CACHE_MAX_SIZE": "3M"})
    assert limited.image("d", kib=1024) == "made"
    assert names(user) == {"a", "c", "d"}


def test_an_image_in_use_stays(user: User) -> None:
    aged(user, "a", "b", "c")
    holder = user.popen("hold", "a")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "found\n"
    # To hold it is to use it: as if that had been long ago, and as long as the lock is held.
    age(user, user.entry("a", 1024), 5000)
    limited = dataclasses.replace(user, settings={"ENROOT_CACHE_MAX_SIZE": "2M"})
    assert limited.image("d", kib=1024) == "made"
    assert names(user) == {"a", "d"}
    assert [entry["in_use"] for entry in entries(user) if "test/a" in str(entry["reference"])] == [True]
    user("cache", "prune", "--all")
    assert names(user) == {"a"}
    holder.communicate("")
    user("cache", "prune", "--all")
    assert names(user) == set()


def test_what_does_not_fit_is_delivered_and_not_kept(user: User) -> None:
    user.entry("small")
    limited = dataclasses.replace(user, settings={"ENROOT_CACHE_MAX_SIZE": "512K"})
    done = limited("image", "large", "1024", "0", "large.sqsh")
    assert done.returncode == 0, done.stderr
    assert "does not keep this image" in done.stderr
    assert (user.home / "large.sqsh").stat().st_size == 1024 * 1024
    assert names(user) == {"small"}
    assert list((user.store / "drafts").iterdir()) == []


def test_a_share_of_the_disk(user: User) -> None:
    user.entry("a")
    none = dataclasses.replace(user, settings={"ENROOT_CACHE_MAX_SHARE": "0"})
    assert none.image("b") == "made"
    assert names(user) == {"a"}


def test_prune(user: User) -> None:
    aged(user, "a", "b", "c")
    user("cache", "prune", "--older", "40m")
    assert names(user) == {"b", "c"}
    user("cache", "prune", "--to-size", "1M")
    assert names(user) == {"c"}
    user("cache", "prune")
    assert names(user) == {"c"}


def test_verify_reads_the_content(user: User) -> None:
    entry = user.entry("x") / "image.sqsh"
    assert user.blob("l").stdout.startswith("made")
    blob = next((user.store / "blobs").iterdir())
    before = [path.stat() for path in (entry, blob)]
    for path, stat in zip((entry, blob), before, strict=True):
        path.chmod(0o600)
        with path.open("r+b") as file:
            file.seek(100_000)
            file.write(b"rot")
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        path.chmod(0o444)
    done = user("cache", "verify")
    assert (done.returncode, done.stderr.count("not what was recorded")) == (1, 2)
    assert user("cache", "verify", "--repair").returncode == 0
    assert entries(user) == []
    assert user.image("x") == "made"


def test_a_damaged_layer_is_made_anew(user: User) -> None:
    assert user.blob("l").stdout.split()[0] == "made"
    assert user.blob("l").stdout.split()[0] == "found"
    blob = next((user.store / "blobs").iterdir())
    blob.chmod(0o600)
    blob.write_bytes(b"x" * blob.stat().st_size)
    done = user.blob("l")
    assert done.stdout.split()[:2] == ["found", "made"]
    assert "is damaged and is removed" in done.stderr
    assert user.blob("l").stdout.split()[0] == "found"


@pytest.mark.parametrize(
    "words",
    [[], ["nonsense"], ["ls", "--all"], ["prune", "--json"], ["prune", "--all", "--older", "1d"],
     ["prune", "--older", "x"], ["prune", "--to-size", "1X"], ["verify", "x"], ["ls", "--nonsense"],
     ["prune", "--older"], ["init"], ["ls", "--all-users"]],
)  # fmt: skip
def test_wrong_usage_exits_1(user: User, words: list[str]) -> None:
    done = user("cache", *words)
    assert done.returncode == 1
    assert done.stderr.startswith("[ERROR] ")


def test_the_list(user: User) -> None:
    user.image("x", kib=2048)
    lines = user("cache", "ls").stdout.splitlines()
    assert lines[0].split() == ["KIND", "DIGEST", "MB", "OWNER", "USED", "REFERENCE"]
    assert lines[1].split()[0:4:2] == ["image", "2.0"]
    assert lines[1].endswith("docker://test/x")
    assert user("cache", "--help").stdout.startswith("Usage: enroot cache ls")
