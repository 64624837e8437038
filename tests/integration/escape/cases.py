# SPDX-License-Identifier: Apache-2.0
"""Lists the attacks of ways/, and the level of isolation that stops each.

`below` says how the attack ended at level `filesystem` on a worker with every capability. `escaped` proves
that the case can fail, and is tested; any other text says why the attack shows nothing there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from tests.integration.escape.arena import LEVELS, Arena, Level, Outcome
from tests.integration.escape.ways import (
    accounting,
    broadcast,
    connections,
    descriptors,
    endings,
    launches,
    libraries,
    mpi,
    node_lists,
    privileges,
    remains,
    requests,
    slurm,
    steps,
    streams,
    submitters,
)

Way = Callable[[Arena, str], Outcome]

# Of each case, all that there is: `build.py test --thorough`.
ALL = bool(os.environ.get("CELLBLOCK_ESCAPE_ALL"))
# Of jobs whose site names no other.
DEFAULT: Level = "capabilities"


@dataclass(frozen=True)
class Case:
    """One way out.

    `stops` is the lowest level that closes it. Without `way`, it is the attack of its own name (attacks/),
    run in one step with the others; with one, that function makes jobs of its own. `open` says why the way
    is known to be open at and above `stops`: the test then must see it open, so that who closes it knows.
    `open_with` names the releases of Slurm with which it is; () is all. Without `by_level`, what a step may
    do makes no difference to it: it is a message to slurmctld or slurmd, which do not know the level. It is
    tried at the default level, and with CELLBLOCK_ESCAPE_ALL at each. With `others_at_night` it is tried with
    other releases of Slurm at night.
    """

    name: str
    stops: Level
    user: str = "root"
    way: Way | None = None
    below: str = "escaped"
    open: str = ""
    open_with: tuple[str, ...] = ()
    by_level: bool = True
    others_at_night: bool = False

    def is_open(self, release: str) -> bool:
        """Whether it is known to be open with that release of Slurm."""
        return bool(self.open) and (not self.open_with or release in self.open_with)

    @property
    def id(self) -> str:
        """Unique among the cases."""
        return self.name if self.user == "root" else f"{self.name}-by-{self.user}"

    def held_at(self, level: Level) -> bool:
        """Whether `level` is to close it, and is tried."""
        return LEVELS.index(level) >= LEVELS.index(self.stops) and (self.by_level or ALL or level == DEFAULT)


def _for_both_users(by_uid: tuple[str, ...], *ways: tuple[str, Way]) -> list[Case]:
    """Each way as root and as a user, at each level; as root those of `by_uid` are closed one level later.

    The release of Slurm makes no difference between the two: a user's are tried with others at night.
    """
    return [
        Case(
            name,
            "capabilities" if user == "root" and name in by_uid else "filesystem",
            user,
            way=way,
            others_at_night=user != "root",
        )
        for name, way in ways
        for user in ("root", "eve")
    ]


def _attacks(stops: Level, *names: str, user: str = "root", below: str = "escaped") -> list[Case]:
    return [Case(name, stops, user, below=below) for name in names]


_BY_FILESYSTEM = [
    *_attacks("filesystem", "nested-chroot", "dot-dot", "kept-descriptors", "umount-root"),
    *_attacks("filesystem", "node-on-volume", "node-on-tmp", "node-on-shm", "node-on-run"),
    *_attacks("filesystem", "listed-devices-only", "step-sockets", "abstract-sockets", "mungeds-root"),
    *_attacks("filesystem", "foreign-terminal"),
    *_attacks("filesystem", "slurmds-port", user="eve"),
    *_attacks("filesystem", "conf-cache-written", "sys-write", "open-tree-of-init", "bind-root-of-init"),
    *_attacks("filesystem", "terminal-by-node", "userns-sysfs", "userns-cgroup", "userns-overlay"),
    *_attacks("filesystem", "userns-writable-bind", "userns-uncover", "userns-join-init", "userns-handle"),
    *_attacks("filesystem", "proc-root", "proc-cwd", "proc-fd", "proc-memory", user="eve"),
    *_attacks("filesystem", "join-init", "trace-victim", "signal-victim", "daemons-root", user="eve"),
    *_attacks("filesystem", "core-pattern", "sysrq-trigger", "sys-write", "kernel-memory", user="eve"),
    *_attacks("filesystem", "bind-over-plan", "remount-writable", "handle-of-the-root", user="eve"),
    *_attacks("filesystem", "foreign-terminal", "kept-descriptors", "nested-chroot", user="eve"),
    *_attacks("filesystem", "userns-core-pattern", "userns-proc", "userns-writable-bind", user="eve"),
    *_attacks("filesystem", "userns-overlay", "userns-cgroup", "userns-join-init", user="eve"),
    *_attacks("filesystem", "userns-handle", "userns-uncover", "userns-sysfs", user="eve"),
    *_attacks("filesystem", "mungeds-root", "daemon-traced", "steal-descriptor", user="eve"),
    *_attacks("filesystem", "peer-process", user="eve"),
    *_attacks("filesystem", "change-priority", "change-limits", "see-processes", user="eve"),
    Case("directory-as-input", "filesystem", way=streams.directory_as_input),
    Case("directory-as-input", "filesystem", "eve", way=streams.directory_as_input),
    Case("output-by-proc", "filesystem", way=streams.output_by_proc),
    Case("output-by-proc", "filesystem", "eve", way=streams.output_by_proc),
    Case("input-by-proc", "filesystem", way=streams.input_by_proc),
    Case("input-by-proc", "filesystem", "eve", way=streams.input_by_proc),
    Case("folder-by-proc", "filesystem", "eve", way=streams.folder_by_proc),
    Case("output-in-conf-cache", "filesystem", way=streams.output_in_conf_cache),
    Case("output-in-conf-cache", "filesystem", "eve", way=streams.output_in_conf_cache),
    Case("input-by-descriptor", "filesystem", way=streams.input_by_descriptor),
    Case("swapped-targets", "filesystem", way=steps.swapped_targets),
    Case("task-prolog", "filesystem", way=steps.task_prolog),
    Case("task-epilog", "filesystem", way=steps.task_epilog),
    Case("preloaded-library", "filesystem", way=libraries.preloaded_library),
    Case("name-service-library", "filesystem", way=libraries.name_service_library),
    Case("character-set-library", "filesystem", way=libraries.character_set_library),
    Case("plugin-by-path", "filesystem", way=libraries.plugin_by_path),
    Case("steering-variables", "filesystem", way=steps.steering_variables),
    Case("no-jail", "filesystem", way=steps.no_jail),
    Case("odd-steps", "filesystem", way=steps.odd_steps),
    Case("another-jobs-step", "filesystem", way=steps.another_jobs_step),
    Case("users-environment", "filesystem", way=steps.users_environment),
    Case("pushed-input", "filesystem", way=streams.pushed_input),
]

_BY_CAPABILITIES = [
    *_attacks("capabilities", "proc-root", "proc-cwd", "proc-fd", "proc-memory"),
    *_attacks("capabilities", "core-pattern", "modprobe-path", "sysrq-trigger"),
    *_attacks("capabilities", "proc-sys-write", "uevent-helper", "kernel-memory", "keys-listed"),
    *_attacks("capabilities", "load-module", "load-module-file", "delete-module", "kexec-load"),
    *_attacks("capabilities", "kexec-file-load", "reboot", "swapoff", "acct", "set-time", "io-ports"),
    *_attacks("capabilities", "set-hostname", "bpf", "perf-events", "io-uring", "userfaultfd"),
    *_attacks("capabilities", "handle-of-the-root", "handle-of-the-canary", "keyring"),
    *_attacks("capabilities", "new-proc", "new-sysfs", "new-devtmpfs", "new-cgroup", "new-tracefs"),
    *_attacks("capabilities", "binfmt-misc", "release-agent", "fuse", "disk-mounted"),
    *_attacks("capabilities", "bind-over-plan", "umount-plan"),
    *_attacks("capabilities", "umount-masks", "remount-writable", "setattr-writable", "remount-sys"),
    *_attacks("capabilities", "pivot-root", "trace-victim", "trace-slurmd", "trace-slurmstepd"),
    *_attacks("capabilities", "read-memory", "compare-pointers", "join-init", "join-by-pidfd"),
    *_attacks("capabilities", "steal-descriptor", "peer-process"),
    *_attacks("capabilities", "userns-proc", "userns-core-pattern"),
    *_attacks("capabilities", "loop-node", "kernel-log-node", "loop-control-node"),
    *_attacks("capabilities", "disk-node", below="the test machine lets nobody open its disk"),
    *_attacks("capabilities", "raw-packets", "network-settings", "change-priority", "change-affinity"),
    *_attacks("capabilities", "slurmds-port", "take-lease"),
    *_attacks("capabilities", "take-lease", user="eve"),
    Case("folder-by-proc", "capabilities", way=streams.folder_by_proc),
    Case("output-in-spool", "filesystem", way=streams.output_in_spool),
    Case("output-in-spool", "filesystem", "eve", way=streams.output_in_spool),
    Case("output-into-own-file-in-spool", "filesystem", "eve", way=streams.output_into_own_file_in_spool),
    Case("enter-init", "capabilities", way=steps.enter_init),
]

_NO_RESOURCE = "another uid's limits take CAP_SYS_RESOURCE, which the test machine may lack"

# A job has a PID namespace of its own from here on; at level pid each step has.
_BY_NUMBER = [
    *_attacks("capabilities", "see-processes", "signal-victim", "daemons-root", "daemon-traced"),
    *_attacks("capabilities", "change-limits", "change-oom-score", "signal-any-number"),
    *(
        Case(
            f"{deed}-{daemon}",
            "capabilities" if user == "root" else "filesystem",
            user,
            below=_NO_RESOURCE if (deed, daemon) == ("limits-of", "munged") else "escaped",
        )
        for deed in ("signal", "oom-score-of", "limits-of")
        for daemon in ("slurmd", "slurmstepd", "munged", "sshd", "agent")
        for user in ("root", "eve")
    ),
    *_attacks("capabilities", "munge-key", "agent-socket", "sshd-descriptors"),
    *_attacks("filesystem", "host-keys"),
    *_attacks("filesystem", "munge-key", "agent-socket", "sshd-descriptors", "host-keys", user="eve"),
    *_attacks("filesystem", "signal-any-number", user="eve"),
]

# What the task itself opens: at level filesystem root's can do so by anybody's /proc/PID/root.
_BY_TASKS = ("walk-program", "walk-folder", "walk-prologs", "walk-batch-doors")
# What a user's task opens by a name, root's opens as well.
_WALKS = _for_both_users(
    _BY_TASKS,
    ("walk-input", descriptors.walk_input),
    ("walk-output", descriptors.walk_output),
    ("walk-error", descriptors.walk_error),
    ("walk-program", descriptors.walk_program),
    ("walk-folder", descriptors.walk_folder),
    ("walk-prologs", descriptors.walk_prologs),
    ("walk-batch-input", descriptors.batch_input),
    ("walk-batch-output", descriptors.batch_output),
    ("walk-batch-doors", descriptors.batch_doors),
)

_LEFT: list[tuple[str, Level, Way]] = [
    ("objects-after-the-job", "filesystem", remains.objects_after_the_job),
    ("objects-of-another-job", "filesystem", remains.objects_of_another_job),
    ("processes-after-the-job", "capabilities", remains.processes_after_the_job),
    ("served-after-the-job", "capabilities", remains.served_after_the_job),
]
_REMAINS = [Case(name, stops, user, way=way) for name, stops, way in _LEFT for user in ("root", "eve")]
# Root's own are left: it could write there without sbcast, and whose they are cannot be told.
_REMAINS += [
    Case("brought-files-after-the-job", "filesystem", "eve", way=remains.brought_files_after_the_job),
    Case("brought-folders-after-the-job", "filesystem", "eve", way=remains.brought_folders_after_the_job),
    Case("output-below-proc", "filesystem", way=streams.output_below_proc),
    Case("processes-of-a-profile", "filesystem", way=remains.processes_of_a_profile),
]

# At level filesystem root's processes are as slurmstepd's own.
_ENDING_BY_UID = (
    "called-slurmstepd",
    "traced-by-another-job",
    "traced-by-an-orphan",
    "signals-of-root",
)
# A release ends processes by the step that they are in, or by their parents, whosever they are.
_ENDINGS = _for_both_users(
    _ENDING_BY_UID,
    ("called-slurmstepd", endings.called_slurmstepd),
    ("called-with-fields", endings.called_with_fields),
    ("dead-leader", endings.dead_leader),
    ("traced-by-another-job", endings.traced_by_another_job),
    ("traced-by-an-orphan", endings.traced_by_an_orphan),
    ("waits-for-an-orphan", endings.waits_for_an_orphan),
    ("waits-for-another-job", endings.waits_for_another_job),
    ("waits-for-itself", endings.waits_for_itself),
    ("waits-in-a-thread", endings.waits_in_a_thread),
    ("exits-into-itself", endings.exits_into_itself),
    ("executes-for-ever", endings.executes_for_ever),
    ("signals-of-root", endings.signals_of_root),
)
# Root in the jail is nobody to Slurm. The others are ended in the same way whoever's they are.
_ENDINGS += [
    Case("asked-for-numbers", "filesystem", "eve", way=endings.asked_for_numbers),
    Case("dumps-into-itself", "filesystem", "eve", way=endings.dumps_into_itself),
    Case("traced-on-its-way-out", "filesystem", "eve", way=endings.traced_on_its_way_out),
]

_PRIVILEGES = [
    Case("set-user-id-by-slurmd", "filesystem", way=privileges.set_user_id_by_slurmd),
    Case("set-user-id-by-sshd", "filesystem", way=privileges.set_user_id_by_sshd),
    Case("file-capabilities-by-slurmd", "filesystem", way=privileges.capabilities_by_slurmd),
    Case("file-capabilities-by-sshd", "filesystem", way=privileges.capabilities_by_sshd),
    Case("device-by-slurmd", "filesystem", way=privileges.device_by_slurmd),
    Case("device-by-sshd", "filesystem", way=privileges.device_by_sshd),
    Case("device-inside", "filesystem", way=privileges.device_inside),
    Case("devices-changed", "filesystem", way=privileges.devices_changed),
    Case("devices-changed", "filesystem", "eve", way=privileges.devices_changed),
    *(
        Case(name, "filesystem", user, way=way)
        for name, way in (
            ("ticket-by-sbcast", privileges.ticket_by_sbcast),
            ("ticket-by-bcast", privileges.ticket_by_bcast),
            ("ticket-by-output", privileges.ticket_by_output),
            ("ticket-by-link", privileges.ticket_by_link),
        )
        for user in ("root", "eve")
    ),
]

_SUBMITTERS = [
    Case("submit-as-munge", "filesystem", way=submitters.munge),
    Case("submit-as-slurm", "filesystem", way=submitters.slurm),
    Case("submit-as-www-data", "filesystem", way=submitters.www_data),
    Case("submit-as-999", "filesystem", way=submitters.last_system_uid),
    Case("submit-as-a-dynamic-uid", "filesystem", way=submitters.dynamic_uid),
    Case("submit-as-nobody", "filesystem", way=submitters.nobody),
    Case("submit-with-group-root", "filesystem", way=submitters.with_group_root),
    Case("submit-with-group-shadow", "filesystem", way=submitters.with_group_shadow),
    Case("submit-with-group-tty", "filesystem", way=submitters.with_group_tty),
]

_MPI = [
    Case("remove-by-pmix", "filesystem", way=mpi.remove_by_pmix),
    Case("remove-by-pmix", "filesystem", "eve", way=mpi.remove_by_pmix),
    Case("join-by-pmix", "filesystem", "eve", way=mpi.join_by_pmix),
    Case("fill-the-spool", "filesystem", "eve", way=mpi.fill_the_spool),
    Case("directories-in-the-spool", "filesystem", "eve", way=mpi.directories),
    # Root has a port of root's at level filesystem.
    Case("direct-port-of-pmix", "capabilities", way=mpi.direct_port),
    Case("direct-port-of-pmix", "filesystem", "eve", way=mpi.direct_port),
    Case("far-node-to-stepd", "filesystem", "eve", way=mpi.far_node_to_stepd),
    Case("far-node-to-srun", "capabilities", way=mpi.far_node_to_srun),
    Case("far-node-to-srun", "filesystem", "eve", way=mpi.far_node_to_srun),
]

_ROGUE = "munge says uid 0 for root inside, and whoever is uid 0 or SlurmUser may configure slurmd"
_STRIGGER = "Slurm 22.05 knows no disable_triggers; with --jail-root nobody nobody inside is SlurmUser"

# What slurmctld, slurmd and slurmdbd read from the network: they know nothing of levels.
_MESSAGES = [
    Case(name, "filesystem", "eve", way=way, by_level=False)
    for name, way in (
        ("launch-with-odd-numbers", launches.with_odd_numbers),
        ("launch-for-many-nodes", launches.for_many_nodes),
        ("pmi2-for-many-nodes", launches.with_many_nodes_for_pmi2),
        ("sbcast-for-no-step", launches.broadcast_for_no_step),
        ("lists-of-billions-of-nodes", node_lists.of_billions),
        ("many-features", node_lists.of_many_features),
        ("many-licenses", node_lists.of_many_licenses),
        ("many-dependencies", node_lists.of_many_dependencies),
        ("ranges-with-a-step", node_lists.of_ranges_with_a_step),
        ("resources-of-a-step", node_lists.of_resources_of_a_step),
        ("long-arguments", node_lists.of_long_arguments),
        ("step-manager", node_lists.by_a_step_manager),
        ("no-tasks-per-socket", launches.no_tasks_per_socket),
        ("spread-over-gpus", launches.spread_over_gpus),
        ("step-without-figures", launches.step_without_figures),
        ("arrays-of-billions", requests.arrays_of_billions),
        ("one-job-many-times", launches.one_job_many_times),
        ("flag-of-slurmctlds-own", launches.flag_of_slurmctlds_own),
        ("message-for-many-nodes", connections.pass_to_many),
        ("message-for-fewer-nodes", connections.pass_to_fewer),
        ("large-messages", connections.send_large),
        ("compressed-blocks", connections.send_compressed),
        ("files-left-open", connections.leave_open),
        ("large-messages-to-slurmctld", connections.send_large_to_slurmctld),
        ("message-without-hash", requests.without_hash),
        ("bodies-of-http", connections.send_bodies),
        ("connections-to-munge", connections.hold_munge),
        ("text-as-query", accounting.text_as_query),
        ("change-left-open", accounting.change_left_open),
    )
]

_BY_SLURM = [
    Case("sbcast-into-every-place", "filesystem", "eve", way=broadcast.into_every_place),
    Case("sbcast-into-every-place", "filesystem", way=broadcast.into_every_place),
    Case("sbcast-onto-devices", "filesystem", "eve", way=broadcast.onto_devices),
    Case("sbcast-onto-devices", "filesystem", way=broadcast.onto_devices),
    Case("sbcast-beside-the-script", "filesystem", "eve", way=broadcast.beside_the_script),
    Case("sbcast-by-munge", "filesystem", way=broadcast.by_munge),
    Case("sbcast-by-group-root", "filesystem", way=broadcast.by_group_root),
    Case("sbcast-by-group-tty", "filesystem", way=broadcast.by_group_tty),
    Case("sbcast-by-group-shadow", "filesystem", way=broadcast.by_group_shadow),
    Case("sbcast-by-all-groups", "filesystem", way=broadcast.by_all_groups),
    Case("sbcast-through-a-link", "filesystem", way=broadcast.through_a_link),
    Case("sbcast-through-a-link", "filesystem", "bob", way=broadcast.through_a_link),
    Case("sbcast-over-a-file", "filesystem", way=broadcast.over_a_file),
    Case("sbcast-over-a-file", "filesystem", "bob", way=broadcast.over_a_file),
    Case("bcast-with-libraries", "filesystem", "eve", way=broadcast.by_option),
    Case("forwarded-data", "filesystem", "eve", way=slurm.forwarded_data),
    Case("sbcast", "filesystem", way=slurm.sbcast),
    Case("srun-bcast", "filesystem", way=slurm.srun_bcast),
    Case("strigger", "filesystem", way=slurm.strigger, open=_STRIGGER, open_with=("22.05",)),
]

# Its worker is repaired after it, so it comes once; levels make no difference. slurmd 22.05 asks nobody.
ROGUE_CONTROLLER = Case(
    "rogue-controller",
    "filesystem",
    way=slurm.rogue_controller,
    open=_ROGUE,
    open_with=("24.11", "26.05"),
)

# No level makes a difference to it, and it takes two minutes.
LAUNCH_FOR_NO_JOB = Case("launch-for-no-job", "filesystem", "eve", way=launches.for_no_job)
ODD_SUBMISSIONS = Case("odd-submissions", "filesystem", "eve", way=launches.odd_submissions)
ODD_REQUESTS = Case("odd-requests", "filesystem", "eve", way=requests.odd_requests)

# No level makes a difference to it, and it takes a minute of both processors, and a gigabyte.
STEPS_WITHOUT_END = Case("steps-without-end", "filesystem", "eve", way=launches.steps_without_end)

# No level makes a difference to these. The first takes half a minute of both processors, the other four.
MANY_CONNECTIONS = Case("many-connections", "filesystem", "eve", way=connections.hold)
STOPPED_CLIENTS = Case("stopped-clients", "filesystem", "eve", way=endings.stopped_clients)

CASES = [
    *_BY_FILESYSTEM,
    *_BY_CAPABILITIES,
    *_BY_NUMBER,
    *_WALKS,
    *_REMAINS,
    *_ENDINGS,
    *_PRIVILEGES,
    *_SUBMITTERS,
    *_MPI,
    *_MESSAGES,
    *_BY_SLURM,
]
