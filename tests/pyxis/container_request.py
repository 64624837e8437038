# SPDX-License-Identifier: Apache-2.0
"""Calls the C code of pyxis/ that parses `srun --container-*`, for tests; jobs go through the SPANK plugin.

It also parses environment variables and the plugin's own arguments. This module turns C's structs into typed
values and its one error struct into `ContainerRequestError`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cellblock.errors import CellblockError
from tests.c_text import error_text, text_of

try:
    from cellblock._pyxis_options import ffi, lib
except ImportError as error:  # an installation without a compiler
    raise CellblockError(
        f"the reader of container options is not compiled ({error})",
        hint="install gcc and the headers of Python, then run: pip install -e .",
    ) from error

NameFlag = Literal["auto", "create", "exec", "no_exec"]
Namespace = Literal["net", "ipc", "uts"]
ImageMount = Literal["auto", "fuse", "unpack", "kernel"]

_FLAGS: dict[int, NameFlag] = {
    lib.PYXIS_AUTO: "auto",
    lib.PYXIS_CREATE: "create",
    lib.PYXIS_EXEC: "exec",
    lib.PYXIS_NO_EXEC: "no_exec",
}
_NAMESPACES: dict[Namespace, int] = {
    "net": lib.PYXIS_UNSHARE_NET,
    "ipc": lib.PYXIS_UNSHARE_IPC,
    "uts": lib.PYXIS_UNSHARE_UTS,
}
_MOUNTS: dict[int, ImageMount] = {
    lib.PYXIS_MOUNT_AUTO: "auto",
    lib.PYXIS_MOUNT_FUSE: "fuse",
    lib.PYXIS_MOUNT_UNPACK: "unpack",
    lib.PYXIS_MOUNT_KERNEL: "kernel",
}
_SWITCHES: dict[int, bool | None] = {lib.PYXIS_UNSET: None, lib.PYXIS_NO: False, lib.PYXIS_YES: True}


class ContainerRequestError(CellblockError):
    """An option, variable or argument is wrong. `option` is its name, "" for arguments of the plugin."""

    def __init__(self, text: str, *, option: str) -> None:
        super().__init__(text)
        self.option = option


@dataclass(frozen=True)
class ContainerRequest:
    """`struct pyxis_request`: `mounts` are lines of fstab, `sources` those of their sources that must exist.

    Switches are None where nothing was said, so that enroot's configuration decides.
    """

    image: str | None
    mounts: tuple[str, ...]
    sources: tuple[str, ...]
    workdir: str | None
    name: str | None
    name_flag: NameFlag
    save: str | None
    mount_home: bool | None
    remap_root: bool | None
    entrypoint: bool | None
    entrypoint_log: bool | None
    writable: bool | None
    environment: tuple[str, ...]
    unshare: frozenset[Namespace]
    idle: tuple[str, ...]
    """Options that mean nothing, because neither an image nor a name is given."""


@dataclass(frozen=True)
class PluginArguments:
    """What plugstack.conf says behind pyxis.so; paths are absolute, None: not given."""

    runtime_path: str
    importer: str | None
    execute_entrypoint: bool
    job_scope: bool
    sbatch_support: bool
    use_enroot_load: bool
    image_mount: ImageMount
    jail_enter: str | None


def _text(pointer: Any) -> str:
    return text_of(ffi, pointer)


def _maybe(pointer: Any) -> str | None:
    return None if pointer == ffi.NULL else _text(pointer)


def _list(raw: Any) -> tuple[str, ...]:
    return tuple(_text(raw.items[i]) for i in range(raw.n))


def _error(err: Any) -> ContainerRequestError:
    return ContainerRequestError(error_text(ffi, lib, err), option=_text(err.file))


def option_names() -> list[str]:
    """`container-image` and its kind, in the plugin's order."""
    return [_text(lib.option_name(i)) for i in range(lib.PYXIS_N_OPTIONS)]


def variable_names() -> list[str]:
    """`PYXIS_CONTAINER_IMAGE` and its kind; the options with "no-" have none of their own."""
    names = (_maybe(lib.option_variable(i)) for i in range(lib.PYXIS_N_OPTIONS))
    return [name for name in names if name is not None]


def _request(raw: Any) -> ContainerRequest:
    names = option_names()
    alone = raw.image == ffi.NULL and raw.name == ffi.NULL
    given = [name for i, name in enumerate(names) if lib.pyxis_request_gives(raw, i)]
    return ContainerRequest(
        image=_maybe(raw.image),
        mounts=_list(raw.mounts),
        sources=_list(raw.sources),
        workdir=_maybe(raw.workdir),
        name=_maybe(raw.name),
        name_flag=_FLAGS[raw.name_flag],
        save=_maybe(raw.save),
        mount_home=_SWITCHES[raw.mount_home],
        remap_root=_SWITCHES[raw.remap_root],
        entrypoint=_SWITCHES[raw.entrypoint],
        entrypoint_log=_SWITCHES[raw.entrypoint_log],
        writable=_SWITCHES[raw.writable],
        environment=_list(raw.environment),
        unshare=frozenset(name for name, bit in _NAMESPACES.items() if raw.unshare & bit),
        idle=tuple(given) if alone else (),
    )


def read_request(
    options: Iterable[tuple[str, str | None]] = (), variables: Mapping[str, str] | None = None
) -> ContainerRequest:
    """What options (`("container-image", "alpine")`; None: no value) and environment variables ask for.

    Variables are read first, so that an option replaces one. Raises ContainerRequestError, and ValueError
    for a name that is none.
    """
    raw, err = ffi.new("struct pyxis_request *"), ffi.new("struct jail_error *")
    names = option_names()
    by_variable = {_maybe(lib.option_variable(i)): i for i in range(len(names))}
    try:
        for variable, text in (variables or {}).items():
            if variable not in by_variable:
                raise ValueError(f"no variable of pyxis: {variable}")
            if lib.pyxis_request_take_variable(raw, by_variable[variable], os.fsencode(text), err):
                raise _error(err)
        for option, value in options:
            word = ffi.NULL if value is None else os.fsencode(value)
            if lib.pyxis_request_take(raw, names.index(option), word, err):
                raise _error(err)
        return _request(raw)
    finally:
        lib.pyxis_request_free(raw)


def read_arguments(words: Iterable[str]) -> PluginArguments:
    """The plugin's arguments. Raises ContainerRequestError."""
    raw, err = ffi.new("struct pyxis_arguments *"), ffi.new("struct jail_error *")
    kept = [ffi.new("char[]", os.fsencode(word)) for word in words]  # C keeps pointers into them
    if lib.pyxis_arguments_parse(len(kept), ffi.new("char *[]", kept), raw, err):
        raise _error(err)
    return PluginArguments(
        runtime_path=_text(raw.runtime_path),
        importer=_maybe(raw.importer),
        execute_entrypoint=bool(raw.execute_entrypoint),
        job_scope=bool(raw.job_scope),
        sbatch_support=bool(raw.sbatch_support),
        use_enroot_load=bool(raw.use_enroot_load),
        image_mount=_MOUNTS[raw.image_mount],
        jail_enter=_maybe(raw.jail_enter),
    )
