"""A layer's blob back into a tree in overlayfs' form: it came from a registry, or its tree was trimmed."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

from cellblock.build.record import LayerRecord
from cellblock.errors import CellblockError
from cellblock.oci.layer import OPAQUE, WHITEOUT, open_layer
from cellblock.oci.layout import Layout

_CHUNK = 1 << 20


def unpack_layer(layout: Layout, record: LayerRecord, tree: Path) -> None:
    """Unpack a layer into the new folder `tree`. Raises CellblockError when the blob is damaged."""
    tree.mkdir(parents=True)
    tree.chmod(0o755)
    argv = [
        *("tar", f"--directory={tree}", "--extract", "--file=-", "--numeric-owner", "--same-permissions"),
        *("--same-owner", "--xattrs", "--xattrs-include=*", "--delay-directory-restore"),
    ]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin
    try:
        with open_layer(layout.blob(record.digest)) as stream:
            while chunk := stream.read(_CHUNK):
                process.stdin.write(chunk)
    except BrokenPipeError:
        pass  # tar says why
    except BaseException:
        process.kill()
        raise
    finally:
        message = process.communicate()[1].decode(errors="replace").strip()
    if process.returncode != 0:
        raise CellblockError(
            f"{layout.blob(record.digest)}: cannot be unpacked: {message}",
            hint=f"remove {layout.blob(record.digest)} and build again",
        )
    _restore_whiteouts(tree)


def _restore_whiteouts(tree: Path) -> None:
    for folder, _, names in os.walk(tree):
        for name in names:
            if not name.startswith(WHITEOUT):
                continue
            path = Path(folder, name)
            status = Path(folder).stat()
            path.unlink()
            if name == OPAQUE:
                os.setxattr(folder, "trusted.overlay.opaque", b"y")
            else:
                os.mknod(path.with_name(name.removeprefix(WHITEOUT)), stat.S_IFCHR, os.makedev(0, 0))
            os.utime(folder, ns=(status.st_atime_ns, status.st_mtime_ns))
