# SPDX-License-Identifier: Apache-2.0
"""Explains the settings of which C sources hold only names, for the reference pages of c_tables.py.

A test compares the names with those that the sources read.
"""

from __future__ import annotations

PLAN_TYPES = {
    "bind": "a directory or a single file of the node",
    "rbind": "a directory of the node with everything that is mounted below it",
    "tmpfs": "an empty file system in memory",
    "proc": "the kernel's view of processes; masked from level `capabilities` up",
    "sysfs": "the kernel's devices; read-only from level `capabilities` up",
    "devpts": "terminals of the job's own",
    "mqueue": "POSIX message queues",
    "dev": "a private /dev with the usual devices and links, empty pts, shm and mqueue",
    "cdi": "devices and files of the driver, by a name of the Container Device Interface",
}
PLAN_OPTIONS = {
    "defaults": "changes nothing: fills the field of a line that has no other option",
    "ro": "read-only; for `rbind` with everything below",
    "rw": "may be written",
    "nosuid": "set-user-ID, set-group-ID and capabilities of files have no effect",
    "suid": "set-user-ID, set-group-ID and capabilities of files have effect",
    "nodev": "device nodes cannot be opened",
    "dev": "device nodes can be opened",
    "noexec": "programs cannot be started",
    "exec": "programs can be started",
    "nofail": "a missing source or target, or a type that the kernel lacks, leaves the line out with a note",
    "x-create": "`dir` or `file`: makes a missing target in the volume",
    "x-jail.if": "an absolute path of the node: the line counts only where it exists",
    "x-jail.per-job": "tmpfs and dev: one for all steps of a job on a node; the default",
    "x-jail.per-step": "tmpfs and dev: one for each step",
}
PLAN_PARAMETERS = {
    "size": "most bytes, with `k`, `m` or `g`, or a part of the memory: `10%`; as tmpfs(5)",
    "mode": "permissions of the top directory, or of terminals: `1777`",
    "uid": "owner of the top directory, a number",
    "gid": "group of the top directory or of terminals; for `proc` the group that sees all processes",
    "nr_inodes": "most files and directories",
    "hidepid": "whose processes a user sees, as proc(5): `ptraceable`, `invisible`, `noaccess` or `off`",
    "subset": "`pid`: nothing but processes",
    "ptmxmode": "permissions of ptmx: `0666`",
    "max": "most terminals",
    "spec-dir": "a directory of CDI specifications, not /etc/cdi and /var/run/cdi; may be repeated",
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
    "jail-partitions": (
        "none: all jobs get the jail",
        "names of partitions, with commas: the jobs in them get the jail ([some jobs only](../packages.md))",
    ),
    "jail-users": ("none", "likewise the jobs of these users: uids and ranges, with commas"),
    "jail-groups": ("none", "likewise the jobs of members of these groups: gids and ranges, with commas"),
    "jail-by-request": ("`no`", "`yes`: likewise jobs with `--jail`"),
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
    "CELLBLOCK_KUBERNETES": (
        "`shared/kubernetes` beside the checkout's folder",
        "folder of the program that starts a Kubernetes, for `bench kubernetes` and tests/kubernetes/cluster",
    ),
    "CELLBLOCK_PROGRAM": (
        "`build.py`",
        "the name that messages call the program by; set by the image jail-init",
    ),
    "CELLBLOCK_REGISTRY_HOST": (
        "every registry",
        "the registry that the two below are for: HOST or HOST:PORT",
    ),
    "CELLBLOCK_REGISTRY_USER": ("not set", "user at the registry"),
    "CELLBLOCK_REGISTRY_PASSWORD": ("not set", "password or token at the registry"),
    "CELLBLOCK_REGISTRY_CA": (
        "not set",
        "file of certificate authorities to trust for the registry, as `--ca`",
    ),
    "CELLBLOCK_REGISTRY_PLAIN_HTTP": ("not set", "speak http to the registry, as `--plain-http`"),
    "SOURCE_DATE_EPOCH": ("not set", "seconds since 1970: no file of an image is newer"),
    "REGISTRY_AUTH_FILE": ("not set", "file of credentials for registries, as podman and skopeo read it"),
    "DOCKER_CONFIG": ("`~/.docker`", "directory with `config.json`, credentials for registries"),
    "DOCKER_HOST": ("`unix:///var/run/docker.sock`", "address of the docker daemon, for the docker engine"),
    "XDG_RUNTIME_DIR": (
        "`/run/containers/UID`, for credentials",
        "directory with `containers/auth.json`, where podman keeps logins to registries",
    ),
    "XDG_CONFIG_HOME": ("`~/.config`", "directory of the user's settings, completion among them"),
    "HOME": ("that of the user's entry in passwd(5)", "where `~` of this table points to"),
    "PATH": ("the shell's", "directories where apt, podman, restic and other programs are looked for"),
    "TMPDIR": ("`/tmp`", "directory of short-lived files"),
    "SQLITE_TMPDIR": (
        "`TMPDIR`, else `/var/tmp`",
        "directory on a disk for sorted lists of a volume's files, which memory need not hold",
    ),
    "TERM": ("not set", "the terminal; `dumb` or none shows progress as plain lines"),
    "CI": ("not set", "set by CI services: progress is shown as plain lines"),
}
NODE_ENVIRONMENT = {
    "CELLBLOCK_CONTROLLER": ("`controller:6817`", "host and port of slurmctld"),
    "CELLBLOCK_ACCOUNTING": ("none", "host and port of slurmdbd, for the controller"),
    "CELLBLOCK_ACCOUNT": ("none", "the account that the controller associates each user of the jail with"),
    "CELLBLOCK_ACCOUNTING_MEMORY_MB": (
        "half of the machine's, 2048 at least",
        "memory that slurmdbd may take, in MiB",
    ),
    "CELLBLOCK_DATABASE": ("`slurm_acct_db`", "the database of slurmdbd"),
    "CELLBLOCK_METRICS_SOURCE": (
        "`commands`",
        "how the exporter asks slurmctld: `commands`, or `openmetrics` from Slurm 25.11.5 on",
    ),
    "CELLBLOCK_METRICS_RECORDS": (
        "`/mnt/jail-records`",
        "where `.cellblock` of the jail's volume is, for the exporter",
    ),
    "CELLBLOCK_DATABASE_CLIENTS": (
        "all",
        "names of the hosts that may connect to the database, with blanks between",
    ),
    "CELLBLOCK_DATABASE_HOST": ("`database:3306`", "host and port of the database, for slurmdbd"),
    "CELLBLOCK_DATABASE_MEMORY_MB": (
        "half of the container's memory, or a sixteenth of the machine's",
        "the database's buffer pool, in MiB",
    ),
    "CELLBLOCK_GRES": ("none", "generic resources that the worker declares, as in `gpu:a100:4`"),
    "CELLBLOCK_NODE": ("the host's name", "the worker's name in Slurm"),
    "CELLBLOCK_NODE_CONF": (
        "`Feature=worker`",
        "what slurm.conf's line of the node would say: `RealMemory=...`",
    ),
    "CELLBLOCK_NODE_PODS": (
        "`/run/node-pods`",
        "the folder in which slurmctld's container and `node-pods` write what they want of each other",
    ),
    "CELLBLOCK_COUNTERS": (
        "none",
        "`yes`: the worker writes counts of its steps to the volume, and `health` what jobs found of nodes, "
        "where the exporter finds them",
    ),
    "CELLBLOCK_ON_DEMAND": ("none", "`yes`: slurm.conf names the node, which comes and goes"),
    "CELLBLOCK_AUTH": (
        "`munge`",
        "what says to Slurm who asks: `munge`, or `slurm`, which is auth/slurm with sackd",
    ),
    "CELLBLOCK_CLUSTER": ("none", "with `CELLBLOCK_AUTH=slurm`: Slurm's ClusterName"),
    "CELLBLOCK_CGROUP": ("`disabled`", "`v2` where the container may use cgroup v2"),
    "CELLBLOCK_USER_PROCESSES": ("no limit", "processes and threads that one user may have on the node"),
    "CELLBLOCK_REST_MEMORY_MB": ("4096", "memory that slurmrestd may take, in MiB"),
    "CELLBLOCK_TOKENS": ("none", "`yes`: slurmctld and slurmdbd wait for the key of tokens, and take them"),
    "CELLBLOCK_WAIT_S": (
        "`60`",
        "seconds to wait for slurmctld, the key of Slurm's daemons and the jail; then the container ends",
    ),
    "CELLBLOCK_JAIL_READY": (
        "wait for a tree alone",
        "`any`, or an image's id, digest or reference: wait until `jail init` has said that it is ready "
        "([more](../jail-kubernetes.md#when-nodes-may-start))",
    ),
    "CELLBLOCK_JAIL_ROOT": ("`nobody`", "what root in the jail is to Slurm: `nobody` or `operator`"),
    "CELLBLOCK_NOT_VOUCHED": (
        "none",
        "uids, N or FIRST-LAST, that munge, or sackd, does not vouch for in the jail, besides the system's",
    ),
}
EXIT_STATUS = {
    "0": "done",
    "1": "failed; for `diff`: something is different; for `audit` and `jail verify`: something was found",
    "2": "wrong usage, or a definition is wrong; for `diff`: trouble, as of diff(1)",
    "130": "ended by Ctrl-C; the same command goes on where it stopped",
    "141": "nobody reads what is printed any more (`| head`)",
}
PROGRAM_EXIT_STATUS = {
    "jail-enter": {
        "0": "the command's own status, or `--check` found nothing wrong",
        "1": "`--check`: the jail cannot be built; `--print`: the plan has a mistake; or the command's own",
        "2": "wrong usage",
        "125": "the jail could not be entered",
        "126": "the command cannot be executed",
        "127": "there is no such command in the jail",
        "128 + N": "signal N ended the command, seen from a terminal of its own or level `pid`",
    },
    "jail-driver": {"0": "done", "1": "failed; `current` is what it was", "2": "wrong usage"},
    "enroot": {
        "0": "done; of `start`, `exec` and `batch` the command's own status",
        "1": "something is wrong, or usage is",
        "126": "the command cannot be executed",
        "127": "there is no such command in the container",
    },
}
ENROOT_SETTINGS = {
    "ENROOT_LIBRARY_PATH": "directory of the programs that enroot starts, `enroot-image` among them",
    "ENROOT_SYSCONF_PATH": "directory of the administrator's enroot.conf, hooks.d, mounts.d, environ.d",
    "ENROOT_RUNTIME_PATH": "directory of what lives as long as a container does",
    "ENROOT_CONFIG_PATH": "directory of the user's configuration, `.credentials` among it",
    "ENROOT_CACHE_PATH": "directory of the user's image cache, mode 0700",
    "ENROOT_DATA_PATH": "directory of containers' roots",
    "ENROOT_TEMP_PATH": "directory of layers that come early, and of archives that are compressed as a whole",
    "ENROOT_SQUASH_OPTIONS": "how image files are written: options of mksquashfs(1)",
    "ENROOT_MAX_PROCESSORS": "threads that decompress, compress and write",
    "ENROOT_MAX_CONNECTIONS": "layers that are fetched at a time",
    "ENROOT_CONNECT_TIMEOUT": "seconds for a connection, and for a program that gives a password",
    "ENROOT_TRANSFER_TIMEOUT": "seconds for one layer; 0: any number",
    "ENROOT_TRANSFER_RETRIES": "how often a broken transfer is taken up again; 0: five times",
    "ENROOT_CACHE_IMAGES": "keep whole images",
    "ENROOT_CACHE_LAYERS": "keep layers",
    "ENROOT_CACHE_LINK": "an imported file may be a read-only hard link of the cache's; no: always a copy",
    "ENROOT_CACHE_MAX_SIZE": "most bytes of the cache: a number, 500M, 20G; 0: no such limit",
    "ENROOT_CACHE_MAX_SHARE": "percent of the cache's file system that is free or its own; 100: no limit",
    "ENROOT_CACHE_PATIENCE": "seconds to wait for another's import that does not advance",
    "ENROOT_CACHE_WAIT": "seconds to wait for another's import altogether",
    "ENROOT_CACHE_OFFLINE": "take what a tag stood for at the last import, and ask nobody",
    "ENROOT_SHARED_CACHE_PATH": "the administrator's directory of images for all users; empty: none",
    "ENROOT_SHARED_CACHE_TRUST": "users, besides oneself and root, whose images are used: names or numbers",
    "ENROOT_SHARED_CACHE_PRIVATE": "what took credentials goes to the administrator's directory, too",
    "ENROOT_LOGIN_SHELL": "the user's shell runs /etc/rc, as a login shell; no: /bin/sh does",
    "ENROOT_NATIVE_OVERLAYFS": "the kernel's overlay serves a started image file; no: fuse-overlayfs does",
    "ENROOT_KERNEL_IMAGES": "for root: the kernel's squashfs serves files that root alone can have written",
    "ENROOT_ALLOW_SUPERUSER": "root starts containers without a user namespace",
    "ENROOT_ALLOW_HTTP": "plain http to every registry",
    "ENROOT_ROOTFS_WRITABLE": "containers can write to their root, as `start --rw`",
    "ENROOT_REMAP_ROOT": "the user is root inside, as `start --root`",
    "ENROOT_BUNDLE_ALL": "bundles carry the user's configuration, as `bundle --all`",
    "ENROOT_BUNDLE_CHECKSUM": "bundles are checked before each start, as `bundle --checksum`",
    "ENROOT_FORCE_OVERRIDE": "what exists is replaced, as `--force`",
    "ENROOT_MOUNT_HOME": "the user's home directory is mounted",
    "ENROOT_RESTRICT_DEV": "a minimal /dev, not the host's",
    "ENROOT_UNSHARE_NET": "a network namespace of the container's own, as `start --net`",
    "ENROOT_UNSHARE_PID": "a PID namespace of its own, as `start --pid`",
    "ENROOT_UNSHARE_IPC": "an IPC namespace of its own, as `start --ipc`",
    "ENROOT_UNSHARE_UTS": "a host name of its own, as `start --uts`",
}
