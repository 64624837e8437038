# SPDX-License-Identifier: Apache-2.0
"""The grammar of container options against docs/pyxis.md's contract, by the plugin's own C."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pyxis.container_request import (
    ContainerRequestError,
    option_names,
    read_arguments,
    read_request,
    variable_names,
)

DOCS = (Path(__file__).parents[2] / "docs/pyxis.md").read_text()
# What no part of a path or name may hold, or is given a meaning by the lists they stand in.
PLAIN = st.text(st.characters(exclude_characters="\0:,+/", codec="utf-8"), min_size=1, max_size=20)
WORDS = {"1": True, "true": True, "yes": True, "y": True, "0": False, "false": False, "no": False, "n": False}


def test_every_option_and_variable_is_there() -> None:
    with_variables = {
        "image", "mounts", "workdir", "name", "save", "mount-home", "remap-root", "entrypoint",
        "entrypoint-log", "writable", "readonly", "env", "unshare",
    }  # fmt: skip
    negative = {"no-container-mount-home", "no-container-remap-root", "no-container-entrypoint"}
    assert set(option_names()) == {f"container-{name}" for name in with_variables} | negative
    assert set(variable_names()) == {
        "PYXIS_CONTAINER_" + name.replace("-", "_").upper() for name in with_variables
    }


def test_the_documentation_has_a_line_for_each_option_and_argument() -> None:
    for option in option_names():
        positive = option.removeprefix("no-")
        assert f"--{option}`" in DOCS or f"--[no-]{positive}`" in DOCS, option
    with pytest.raises(ContainerRequestError) as caught:
        read_arguments(["colour=red"])
    names = re.findall(r"(\w+)=", str(caught.value).partition("known:")[2])
    assert len(names) == 9
    assert [name for name in names if name not in DOCS] == []


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("container-image", "", "--container-image: the value is empty"),
        ("container-workdir", "", "--container-workdir: the value is empty"),
        ("container-mounts", "src:/dst", '--container-mounts: "src:/dst": the source is a path'),
        ("container-mounts", "/a:b", "the destination begins with . or /"),
        ("container-mounts", "/a,,/b", "the source is empty"),
        ("container-mounts", "/a:/../b", '"/a:/../b": Invalid cross-device link: the target lies above'),
        ("container-name", "a/b", "--container-name: a name holds no"),
        ("container-name", "a:join", 'unknown flag "join"'),
        ("container-save", "dir/", 'ends with "/"'),
        ("container-env", "A,,B", "a name is empty"),
        ("container-unshare", "net,pid", "unknown namespace 'pid'"),
    ],
)
def test_what_is_wrong_names_the_option(option: str, value: str, message: str) -> None:
    with pytest.raises(ContainerRequestError, match=re.escape(message)) as caught:
        read_request([(option, value)])
    assert caught.value.option == f"--{option}"


def test_an_option_replaces_a_variable() -> None:
    variables = {"PYXIS_CONTAINER_IMAGE": "one", "PYXIS_CONTAINER_REMAP_ROOT": "Yes"}
    assert read_request((), variables).image == "docker://one"
    assert read_request((), variables).remap_root is True
    request = read_request([("container-image", "/two"), ("no-container-remap-root", None)], variables)
    assert (request.image, request.remap_root) == ("/two", False)


def test_options_without_a_container_are_idle() -> None:
    given_options = [("container-workdir", "/tmp"), ("container-readonly", None)]
    assert read_request(given_options).idle == ("container-workdir", "container-readonly")
    assert read_request([*given_options, ("container-name", "one")]).idle == ()


@settings(deadline=None)
@given(word=st.sampled_from([*WORDS, "TRUE", "No", "on", "2", ""]) | st.text("01truefalsyn", max_size=5))
def test_a_boolean_is_one_of_eight_words(word: str) -> None:
    known = WORDS.get(word.lower())
    if known is None:
        with pytest.raises(ContainerRequestError):
            read_request((), {"PYXIS_CONTAINER_MOUNT_HOME": word})
    else:
        assert read_request((), {"PYXIS_CONTAINER_MOUNT_HOME": word}).mount_home is known


@settings(deadline=None)
@given(name=PLAIN, flag=st.sampled_from(["", ":auto", ":create", ":exec", ":no_exec"]))
def test_a_name_is_kept_as_it_is(name: str, flag: str) -> None:
    request = read_request([("container-name", name + flag)])
    assert (request.name, request.name_flag) == (name, flag[1:] or "auto")


@settings(deadline=None)
@given(
    source=PLAIN,
    target=PLAIN.filter(lambda text: text != ".."),
    flags=st.lists(st.sampled_from(["ro", "nosuid", "rprivate"]), max_size=3),
)
def test_a_mount_is_one_line_of_fstab(source: str, target: str, flags: list[str]) -> None:
    mount = ":".join([f"/{source}", f"/{target}", *(["+".join(flags)] if flags else [])])
    request = read_request([("container-mounts", f"{mount},{mount}")])
    (line,) = request.mounts
    first, second, kind, options = line.split(" ")
    assert request.sources == (f"/{source}",)
    assert (kind, options) == ("none", ",".join(["x-create=auto", "rbind", *flags]))
    unescaped = [
        re.sub(rb"\\([0-3][0-7][0-7])", lambda found: bytes([int(found[1], 8)]), field.encode())
        for field in (first, second)
    ]
    assert unescaped == [f"/{source}".encode(), f"/{target}".encode()]


@settings(deadline=None)
@given(word=st.sampled_from([*WORDS, "TRUE", "No", "on", "2", ""]))
@pytest.mark.parametrize(
    ("switch", "field"), [("execute_entrypoint", "execute_entrypoint"), ("sbatch_support", "sbatch_support")]
)
def test_a_switch_of_plugstack_is_one_of_the_same_eight(switch: str, field: str, word: str) -> None:
    known = WORDS.get(word.lower())
    if known is None:
        with pytest.raises(ContainerRequestError, match=f"{switch}={word}"):
            read_arguments([f"{switch}={word}"])
    else:
        assert getattr(read_arguments([f"{switch}={word}"]), field) is known


@pytest.mark.parametrize(
    ("word", "field", "value"),
    [
        ("runtime_path=/x", "runtime_path", "/x"),
        ("execute_entrypoint=1", "execute_entrypoint", True),
        ("container_scope=job", "job_scope", True),
        ("sbatch_support=0", "sbatch_support", False),
        ("use_enroot_load=1", "use_enroot_load", True),
        ("importer=/get", "importer", "/get"),
        ("use_squashfuse=1", "image_mount", "fuse"),
        ("image_mount=kernel", "image_mount", "kernel"),
        ("jail_enter=/e", "jail_enter", "/e"),
    ],
)
def test_an_argument_changes_one_thing(word: str, field: str, value: object) -> None:
    plain, changed = read_arguments([]), read_arguments([word])
    differing = {name for name in vars(plain) if getattr(plain, name) != getattr(changed, name)}
    assert differing == {field}
    assert getattr(changed, field) == value
