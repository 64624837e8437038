# SPDX-License-Identifier: Apache-2.0
"""Unpacks a layer's blob into a tree in the form that overlayfs takes, when the cache has no tree of it.

layer_builder.py needs the trees of lower layers to make a layer on them.
"""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.oci.layer import OPAQUE, WHITEOUT, last_words, open_layer
from cellblock.oci.layout import Layout
from cellblock.store.record import LayerRecord

_CHUNK = 1 << 20


def unpack_layer(layout: Layout, record: LayerRecord, tree: Path) -> None:
    """Unpack a layer into the new folder `tree`. Raises CellblockError when the blob is damaged."""
    blob = layout.blob(record.digest)
    tree.mkdir(parents=True)
    tree.chmod(0o755)
    argv = [
        *("tar", f"--directory={tree}", "--extract", "--file=-", "--numeric-owner", "--same-permissions"),
        *("--same-owner", "--xattrs", "--xattrs-include=*", "--delay-directory-restore"),
    ]
    environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
    environment.pop("TAR_OPTIONS", None)
    hashed = hashlib.sha256()
    # Files of another machine's layer: a line for each that fails would fill a pipe that nobody reads.
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=errors, env=environment)
        assert process.stdin
        reason = ""
        try:
            with open_layer(blob) as stream:
                while chunk := stream.read(_CHUNK):
                    hashed.update(chunk)
                    process.stdin.write(chunk)
        except BrokenPipeError:
            pass  # tar says why
        except Exception as error:  # each decompressor has its own
            reason = str(error)
            process.kill()
        except BaseException:
            process.kill()
            raise
        finally:
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.wait()
        reason = reason or (last_words(errors) if process.returncode else "")
    if not reason and f"sha256:{hashed.hexdigest()}" != record.diff_id:
        reason = f"it holds sha256:{hashed.hexdigest()}, and {record.diff_id} was written"
    if reason:
        raise CellblockError(f"{blob}: cannot be unpacked: {reason}", hint=f"remove {blob} and build again")
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
