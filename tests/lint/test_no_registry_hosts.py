# SPDX-License-Identifier: Apache-2.0
"""No file names the host of a package registry or mirror: those are the machine's to choose.

Which hosts that would be is read from this machine's own configuration of apt, pip and npm, so that no
list of them stands here. It says nothing on a machine that has none configured, and says that.
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from test_lint import files

from cellblock import paths

_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s\"'\],]+", re.IGNORECASE)
_VARIABLES = (
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "UV_INDEX_URL",
    "NPM_CONFIG_REGISTRY",
    "npm_config_registry",
)
_LOCAL = ("localhost", "127.", "[::1]", "::1")


def apt_hosts() -> Iterator[str]:
    """From sources.list and its parts; comments too: people comment a mirror out and forget it."""
    for path in (Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")):
        if path.is_file():
            yield from hosts_in(path.read_text(errors="replace"))


def pip_hosts() -> Iterator[str]:
    """From pip's configuration files: the indexes, and no other address in them."""
    for path in (Path("/etc/pip.conf"), Path("~/.config/pip/pip.conf"), Path("~/.pip/pip.conf")):
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        try:
            parser.read(path.expanduser())
        except configparser.Error:
            continue
        for section in parser.sections():
            for key in ("index-url", "extra-index-url", "find-links", "index", "trusted-host"):
                value = parser.get(section, key, fallback="")
                yield from hosts_in(value)
                if key == "trusted-host":
                    yield from (host.partition(":")[0] for host in value.split())


def npm_hosts() -> Iterator[str]:
    """From lines `registry = URL` and `@scope:registry = URL`; tokens stand on other lines."""
    for path in (Path("/etc/npmrc"), Path("~/.npmrc").expanduser()):
        if path.is_file():
            lines = path.read_text(errors="replace").splitlines()
            yield from hosts_in(
                "\n".join(line for line in lines if re.match(r"\s*(@\S+:)?registry\s*=", line))
            )


def environment_hosts() -> Iterator[str]:
    for name in _VARIABLES:
        yield from hosts_in(os.environ.get(name, ""))


def hosts_in(text: str) -> Iterator[str]:
    for url in _URL.findall(text):
        host = urlsplit(url).hostname
        if host and "." in host and not host.startswith(_LOCAL):
            yield host.lower()


def registry_hosts() -> set[str]:
    return {*apt_hosts(), *pip_hosts(), *npm_hosts(), *environment_hosts()}


def test_no_file_names_a_registry() -> None:
    hosts = registry_hosts()
    if not hosts:
        pytest.skip("this machine's apt, pip and npm name no host")
    found = [
        f"{path}:{number}: {host}"
        for path in files()
        for number, line in enumerate((paths.PROJECT / path).read_text(errors="replace").splitlines(), 1)
        for host in hosts
        if host in line.lower()
    ]
    assert not found, "take the machine's own configuration instead:\n" + "\n".join(found)


def test_hosts_are_found_in_what_configurations_look_like() -> None:
    text = "deb [arch=amd64] http://a.example/debian x main\n# URIs: https://b.example:8/x\nfile:///opt/x"
    assert list(hosts_in(text)) == ["a.example", "b.example"]
    assert list(hosts_in("http://user:secret@c.example/simple http://localhost/ http://127.0.0.1:1/")) == [
        "c.example"
    ]
