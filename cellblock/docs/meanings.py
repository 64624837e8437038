# SPDX-License-Identifier: Apache-2.0
"""Meanings of what C sources and the environment know by name, for the pages of the reference.

A test compares the names with those that the sources read.
"""

from __future__ import annotations

PLAN_TYPES = {
    "bind": "a directory or a single file of the node",
    "rbind": "a directory of the node with everything that is mounted below it",
    "tmpfs": "an empty file system in memory",
    "proc": "processes",
    "sysfs": "the kernel's devices; read-only from level `capabilities` up",
    "devpts": "terminals: an instance of its own",
    "mqueue": "POSIX message queues",
    "dev": "a private /dev with the usual devices and links, empty pts, shm and mqueue",
    "cdi": "devices and files of the driver, by a name of the Container Device Interface",
}
PLAN_OPTIONS = {
    "defaults": "nothing: fills the field",
    "ro": "read-only; for `rbind` with everything below",
    "rw": "may be written",
    "nosuid": "setuid, setgid and capabilities of files have no effect",
    "suid": "they have",
    "nodev": "device nodes cannot be opened",
    "dev": "they can",
    "noexec": "programs cannot be started",
    "exec": "they can",
    "nofail": "a missing source or target, or a type that the kernel lacks, leaves the line out with a note",
    "x-create": "`dir` or `file`: makes a missing target in the volume",
    "x-jail.if": "an absolute path of the node: the line counts only where it exists",
    "x-jail.per-job": "tmpfs and dev: one for all steps of a job on a node; the default",
    "x-jail.per-step": "tmpfs and dev: one for each step",
}
JAIL_ARGUMENTS = {
    "root": ("`/mnt/jail/root`", "the directory that becomes `/`"),
    "plan": ("`/etc/cellblock/jail.fstab`", "the mount plan"),
    "level": (
        "`capabilities`",
        "how far a job is cut off from the node: `filesystem`, `capabilities` or `pid` "
        "([levels](../jail-isolation.md))",
    ),
    "init": ("`/usr/libexec/cellblock/jail-init`", "the program that is PID 1 of a job's PID namespace"),
    "users": (
        "`1000-60000,65536-4294967293`",
        "whose jobs run, by uid and primary group, besides root's: numbers and ranges, with commas",
    ),
    "bcast": ("`/run/bcast`", "where sbcast writes; the same as `BcastParameters=DestDir`"),
    "spool": ("SlurmdSpoolDir", "slurmd's spool directory, as it is on the node"),
    "window": (
        "`/usr`",
        "besides `/usr`, a directory of the node that slurmstepd needs to open job files; may be repeated",
    ),
    "bind-allow": ("none", "PATH or PATH:ro: what `--jail-bind` may take from the node; may be repeated"),
    "no-jail-uids": ("none", "who may ask for `--no-jail`: numbers with commas"),
    "no-jail-tickets": ("none", "the directory of tickets; needed with `no-jail-uids=`"),
    "allow": ("none", "system calls that the filter leaves alone, with commas: `perf_event_open`"),
}
PYXIS_ARGUMENTS = {
    "runtime_path": ("`/run/pyxis`", "where the node notes which containers a job has"),
    "execute_entrypoint": ("no", "runs the image's entrypoint before the task's program"),
    "container_scope": ("`global`", "`job`: named containers of a job go with it"),
    "sbatch_support": ("yes", "sbatch and salloc take the options too"),
    "use_enroot_load": ("no", "imports an image straight to a container root"),
    "importer": ("none", "the program that gets an image in place of `enroot import`"),
    "use_squashfuse": ("no", "the same as `image_mount=fuse`"),
    "image_mount": (
        "`auto`",
        "`fuse`, `unpack` or `kernel`: how an image becomes a root. `auto` mounts with fuse, and unpacks "
        "where there is no /dev/fuse",
    ),
    "jail_enter": ("none", "the program by which the epilog enters the jail, where there is one"),
}
ENVIRONMENT = {
    "CELLBLOCK_STATE": (
        "`/var/lib/cellblock`",
        "directory of what must not be lost: clusters, their secrets and volumes",
    ),
    "CELLBLOCK_CACHE": (
        "`/var/cache/cellblock`",
        "directory of what can be made again: packages, layers, images",
    ),
    "CELLBLOCK_PROGRAM": (
        "`build.py`",
        "the name that messages call the program by; set by the image jail-init",
    ),
    "CELLBLOCK_REGISTRY_HOST": ("", "the registry that the two below are for"),
    "CELLBLOCK_REGISTRY_USER": ("", "user at the registry"),
    "CELLBLOCK_REGISTRY_PASSWORD": ("", "password or token at the registry"),
    "CELLBLOCK_REGISTRY_CA": ("", "file of certificate authorities to trust for the registry, as `--ca`"),
    "CELLBLOCK_REGISTRY_PLAIN_HTTP": ("", "speak http to the registry, as `--plain-http`"),
    "SOURCE_DATE_EPOCH": ("", "seconds since 1970: no file of an image is newer"),
    "REGISTRY_AUTH_FILE": ("", "file of credentials for registries, as podman and skopeo read it"),
    "DOCKER_CONFIG": ("`~/.docker`", "directory with `config.json`, credentials for registries"),
    "DOCKER_HOST": ("", "socket of the docker daemon, for the docker engine"),
    "XDG_RUNTIME_DIR": ("", "directory where credentials lie in `containers/auth.json`"),
    "XDG_CONFIG_HOME": ("`~/.config`", "directory of the user's settings, completion among them"),
    "HOME": ("", "the user's directory"),
    "PATH": ("", "where programs are looked for"),
    "TMPDIR": ("`/tmp`", "where short-lived files go"),
    "SQLITE_TMPDIR": ("", "where the sorting of long tables goes to disk"),
    "TERM": ("", "the terminal; `dumb` or none shows progress as plain lines"),
    "CI": ("", "set by CI services: progress is shown as plain lines"),
}
EXIT_STATUS = {
    "0": "done",
    "1": "failed; for `diff`: something is different; for `audit` and `jail verify`: something was found",
    "2": "wrong usage, or a definition is wrong; for `diff`: trouble, as of diff(1)",
    "130": "ended by Ctrl-C; the same command goes on where it stopped",
    "141": "nobody reads what is printed any more (`| head`)",
}
