# SPDX-License-Identifier: Apache-2.0
"""`jail assemble` and `jail init` from registries that need a word said about how to reach them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cellblock.oci.layout import Layout
from cellblock.oci.registry import ConnectionOptions
from tests.integration.push.pushing import image, send
from tests.integration.push.test_refusals import self_signed
from tests.integration.registry import running_registry
from tests.oci.layers import make_image, member

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="A JAIL'S SOURCES ARE NOT TESTED: this needs root")


def jail(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "cellblock.cli", "jail", *arguments]
    return subprocess.run(
        argv, capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )


def test_an_authority_of_ones_own_is_believed(layout: Layout, path: str, tmp_path: Path) -> None:
    made = make_image(layout, "jail", [member("etc/motd", "here")])
    certificate, key = self_signed(tmp_path)
    with running_registry(tmp_path / "r", certificate=(certificate, key)) as registry:
        options = ConnectionOptions(ca=certificate)
        send(layout, registry.host, image("jail", made.descriptor, path), options=options)
        source = f"docker://{registry.host}/{path}:t"
        refused = jail("assemble", source, str(tmp_path / "v"))
        assert refused.returncode == 1
        assert "or give --ca" in refused.stderr
        for number, command in enumerate(("assemble", "init")):
            volume = tmp_path / str(number)
            done = jail(command, source, str(volume), "--ca", str(certificate))
            assert done.returncode == 0, done.stderr
            assert (volume / "root/etc/motd").read_text() == "here"
            # By a variable, as in a pod; the same image is there already, and looked for.
            again = jail("upgrade", source, str(volume), CELLBLOCK_REGISTRY_CA=str(certificate))
            assert again.returncode == 0, again.stderr
        missing = jail("assemble", source, str(tmp_path / "v"), "--ca", "/no/such")
        assert "/no/such: there is no such file of certificate authorities" in missing.stderr


def test_plain_http_is_spoken_when_it_is_asked_for(layout: Layout, path: str, tmp_path: Path) -> None:
    made = make_image(layout, "jail", [member("etc/motd", "here")])
    # Loopback needs no permission; a name does, which is this machine all the same.
    with running_registry(tmp_path / "r") as registry:
        send(layout, registry.host, image("jail", made.descriptor, path))
        proxy = {"http_proxy": f"http://{registry.host}", "HTTPS_PROXY": f"http://{registry.host}"}
        source = f"docker://registry.example:5000/{path}:t"
        assert jail("assemble", source, str(tmp_path / "v"), **proxy).returncode == 1
        done = jail("assemble", source, str(tmp_path / "v"), "--plain-http", **proxy)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "v/root/etc/motd").read_text() == "here"


def test_commands_are_named_as_they_are_called(tmp_path: Path) -> None:
    """In the image jail-init the program is `cellblock`, and there is no build.py."""
    usage = jail("init", "--help", CELLBLOCK_PROGRAM="cellblock")
    assert "Usage: cellblock jail init" in usage.stdout
    wrong = jail("init", CELLBLOCK_PROGRAM="cellblock")
    assert "cellblock jail init" in wrong.stderr
    assert "build.py" not in wrong.stderr
    nothing = jail("verify", str(tmp_path), CELLBLOCK_PROGRAM="cellblock")
    assert nothing.returncode != 0
    assert "build.py" not in nothing.stderr
    hint = jail("verify", "/nowhere")
    assert "next: `python3 build.py jail assemble SOURCE VOLUME` makes one" in hint.stderr
    in_a_pod = jail("verify", "/nowhere", CELLBLOCK_PROGRAM="cellblock")
    assert "next: `cellblock jail assemble SOURCE VOLUME` makes one" in in_a_pod.stderr
