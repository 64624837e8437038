# SPDX-License-Identifier: Apache-2.0
"""Defines Grafana's dashboards: cluster, nodes, jobs and users, controller and scheduler, jail.

panels.py turns them into the JSON that Grafana imports.
"""

from __future__ import annotations

from cellblock.metrics.panels import Dashboard, Panel, of


def _share(part: str, whole: str) -> str:
    return f"sum by (instance) ({of(part)}) / sum by (instance) ({of(whole)})"


def _states(prefix: str, *names: str) -> tuple[tuple[str, str], ...]:
    return tuple((f"sum by (instance) ({of(f'{prefix}_{name}')})", name.replace("_", " ")) for name in names)


def _number(title: str, expression: str, unit: str = "short") -> Panel:
    return Panel(title, ((expression, "{{instance}}"),), "number", unit, width=4)


def _verdicts(number: int) -> str:
    """Nodes by check whose last verdict is that: 1 failed, 2 could not run."""
    return f"sum by (instance, check) ({of('cellblock_health_verdict')} == bool {number})"


def _or_none(name: str) -> str:
    """Nodes of which there is such a sample; 0 where health is looked at and there is none."""
    none = f"sum by (instance) ({of('cellblock_health_verdict')} * 0)"
    return f"count by (instance) (count by (instance, node) ({of(name)})) or {none}"


_NODE_STATES = ("alloc", "mixed", "idle", "completing", "draining", "drained", "down", "noresp", "maint")
_ENDED = ("failed", "timeout", "outofmemory", "node_failed", "cancelled", "preempted")

_CPUS = _share("slurm_node_cpus_alloc", "slurm_node_cpus_effective")
_MEMORY = _share("slurm_node_memory_alloc_bytes", "slurm_node_memory_effective_bytes")

CLUSTER = Dashboard(
    "cellblock-cluster",
    "Slurm: the cluster",
    "Whether the cluster works, how full it is, and what waits.",
    (
        (
            "Now",
            (
                _number("slurmctld answers", of("cellblock_slurmctld_up"), "bool_yes_no"),
                _number("Nodes", of("slurm_nodes")),
                _number("Nodes down", of("slurm_nodes_down")),
                _number("Jobs that run", of("slurm_jobs_running")),
                _number("Jobs that wait", f"{of('slurm_jobs_pending')} - {of('slurm_jobs_hold')}"),
                _number(
                    "Processors in use",
                    _share("slurm_node_cpus_alloc", "slurm_node_cpus_effective"),
                    "percentunit",
                ),
            ),
        ),
        (
            "Use",
            (
                Panel(
                    "Share of processors and memory that jobs have",
                    (
                        (_CPUS, "processors"),
                        (_MEMORY, "memory"),
                    ),
                    unit="percentunit",
                ),
                Panel(
                    "GPUs",
                    (
                        (f"sum by (instance) ({of('slurm_node_gpus_alloc')})", "in use"),
                        (f"sum by (instance) ({of('slurm_node_gpus')})", "all"),
                    ),
                ),
                Panel("Jobs", _states("slurm_jobs", "running", "pending", "hold", "completing"), "stacked"),
                Panel("Nodes by state; one can be in several", _states("slurm_nodes", *_NODE_STATES)),
            ),
        ),
        (
            "Partitions",
            (
                Panel(
                    "Processors that jobs have",
                    ((of("slurm_partition_nodes_cpus_alloc"), "{{partition}}"),),
                    "stacked",
                ),
                Panel("Jobs that wait", ((of("slurm_partition_jobs_pending"), "{{partition}}"),), "stacked"),
            ),
        ),
    ),
)

NODES = Dashboard(
    "cellblock-nodes",
    "Slurm: nodes",
    "What each node has, what jobs have of it, and which nodes take no jobs.",
    (
        (
            "States",
            (
                Panel("Nodes by state; one can be in several", _states("slurm_nodes", *_NODE_STATES)),
                Panel(
                    "Nodes that take no jobs",
                    _states("slurm_nodes", "down", "drained", "draining", "fail", "invalid_reg", "noresp"),
                ),
            ),
        ),
        (
            "The fullest nodes",
            (
                Panel(
                    "Processors that jobs have",
                    (
                        (
                            f"topk(20, {of('slurm_node_cpus_alloc')} / {of('slurm_node_cpus_effective')})",
                            "{{node}}",
                        ),
                    ),
                    "bars",
                    "percentunit",
                ),
                Panel(
                    "Memory that jobs have",
                    (
                        (
                            f"topk(20, {of('slurm_node_memory_alloc_bytes')} /"
                            f" {of('slurm_node_memory_bytes')})",
                            "{{node}}",
                        ),
                    ),
                    "bars",
                    "percentunit",
                ),
                Panel(
                    "The least free memory, as the node's kernel sees it",
                    ((f"bottomk(20, {of('slurm_node_memory_free_bytes')})", "{{node}}"),),
                    unit="bytes",
                ),
                Panel("GPUs that jobs have", ((f"topk(20, {of('slurm_node_gpus_alloc')})", "{{node}}"),)),
            ),
        ),
        (
            "Health, where the cluster file has it",
            (
                Panel("Nodes on which a check failed last", ((_verdicts(1), "{{check}}"),), "stacked"),
                Panel("Nodes on which a check could not run", ((_verdicts(2), "{{check}}"),)),
                Panel(
                    "Nodes that are sick, and those that serve all the same: the budget is spent",
                    (
                        (_or_none("cellblock_health_sick"), "sick"),
                        (_or_none("cellblock_health_over_budget"), "over the budget"),
                    ),
                ),
            ),
        ),
    ),
)

JOBS = Dashboard(
    "cellblock-jobs",
    "Slurm: jobs and users",
    "Who runs and waits, and how jobs end.",
    (
        (
            "Jobs",
            (
                Panel(
                    "Jobs submitted, started and completed, a minute",
                    tuple(
                        (f"rate({of(f'slurm_sdiag_jobs_{name}')}[$__rate_interval]) * 60", name)
                        for name in ("submitted", "started", "completed")
                    ),
                    description="slurmctld counts anew each night and at its start; a rate allows for that.",
                ),
                Panel(
                    "Jobs that ended badly, of those that slurmctld still knows",
                    _states("slurm_jobs", *_ENDED),
                    "stacked",
                ),
            ),
        ),
        (
            "Users",
            (
                Panel(
                    "Processors",
                    ((f"topk(10, {of('slurm_user_jobs_cpus_alloc')})", "{{username}}"),),
                    "stacked",
                ),
                Panel(
                    "Memory",
                    ((f"topk(10, {of('slurm_user_jobs_memory_alloc')})", "{{username}}"),),
                    "stacked",
                    "bytes",
                ),
                Panel(
                    "GPUs", ((f"topk(10, {of('slurm_user_jobs_gpus_alloc')})", "{{username}}"),), "stacked"
                ),
                Panel(
                    "Jobs that wait",
                    ((f"topk(10, {of('slurm_user_jobs_pending')})", "{{username}}"),),
                    "stacked",
                ),
                Panel(
                    "Jobs that failed",
                    ((f"topk(10, {of('slurm_user_jobs_failed')})", "{{username}}"),),
                    "bars",
                ),
            ),
        ),
        (
            "Accounts",
            (
                Panel("Processors", ((of("slurm_account_jobs_cpus_alloc"), "{{account}}"),), "stacked"),
                Panel("Jobs that wait", ((of("slurm_account_jobs_pending"), "{{account}}"),), "stacked"),
            ),
        ),
    ),
)

CONTROLLER = Dashboard(
    "cellblock-controller",
    "Slurm: controller and scheduler",
    "What slurmctld is busy with, how long its schedulers take, and how the exporter asks it.",
    (
        (
            "slurmctld",
            (
                Panel("Threads that serve requests", ((of("slurm_server_thread_cnt"), "{{instance}}"),)),
                Panel(
                    "Queues",
                    (
                        (of("slurm_agent_queue_size"), "messages to nodes"),
                        (of("slurm_slurmdbd_queue_size"), "records for slurmdbd"),
                    ),
                ),
            ),
        ),
        (
            "Schedulers",
            (
                Panel(
                    "The last cycle",
                    (
                        (f"{of('slurm_schedule_cycle_last')} / 1e6", "main"),
                        (f"{of('slurm_bf_cycle_last')} / 1e6", "backfill"),
                    ),
                    unit="s",
                ),
                Panel(
                    "Cycles a minute",
                    (
                        (f"rate({of('slurm_schedule_cycle_cnt')}[$__rate_interval]) * 60", "main"),
                        (f"rate({of('slurm_bf_cycle_cnt')}[$__rate_interval]) * 60", "backfill"),
                    ),
                ),
                Panel(
                    "Jobs in the queue",
                    ((of("slurm_schedule_queue_len"), "main"), (of("slurm_bf_queue_len"), "backfill")),
                ),
                Panel(
                    "Jobs that backfill started, a minute",
                    ((f"rate({of('slurm_backfilled_jobs')}[$__rate_interval]) * 60", "{{instance}}"),),
                ),
            ),
        ),
        (
            "The exporter",
            (
                Panel(
                    "Age of the figures",
                    ((of("cellblock_exporter_cache_age_seconds"), "{{kind}}"),),
                    unit="s",
                ),
                Panel(
                    "Time that a question takes",
                    ((of("cellblock_exporter_question_seconds"), "{{kind}}"),),
                    unit="s",
                ),
                Panel(
                    "Questions to slurmctld, a minute",
                    (
                        (
                            f"sum by (kind, result) "
                            f"(rate({of('cellblock_exporter_questions_total')}[$__rate_interval])) * 60",
                            "{{kind}} {{result}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
)

JAIL = Dashboard(
    "cellblock-jail",
    "Cellblock: the jail",
    "The shared root: the image it is made of, how old that is, and how steps get in.",
    (
        (
            "Now",
            (
                _number("Assembled", of("cellblock_jail_ready"), "bool_yes_no"),
                _number(
                    "Age of the image in it", f"time() - {of('cellblock_jail_image_timestamp_seconds')}", "s"
                ),
                _number("Size of the image", of("cellblock_jail_image_bytes"), "bytes"),
                _number("Files of the image", of("cellblock_jail_image_files")),
                _number("Upgrades and rollbacks", of("cellblock_jail_transactions_total")),
            ),
        ),
        (
            "Steps",
            (
                Panel(
                    "Steps that entered, a minute",
                    (
                        (
                            f"topk(20, rate({of('cellblock_steps_entered_total')}[$__rate_interval]) * 60)",
                            "{{node}}",
                        ),
                    ),
                    "stacked",
                ),
                Panel(
                    "Steps that did not, a minute",
                    (
                        (
                            "sum by (reason) "
                            f"(rate({of('cellblock_steps_failed_total')}[$__rate_interval])) * 60",
                            "{{reason}}",
                        ),
                    ),
                    "stacked",
                    description="By what is at fault: an option of the job, what users wrote in the jail, a "
                    "shortage of processes, mounts or memory, or the node, which is drained then.",
                ),
                Panel(
                    "Nodes drained by themselves, a minute",
                    (
                        (
                            "sum by (check) "
                            f"(rate({of('cellblock_node_drains_total')}[$__rate_interval])) * 60",
                            "{{check}}",
                        ),
                    ),
                    "stacked",
                ),
            ),
        ),
        (
            "Containers",
            (
                Panel(
                    "Images, a minute",
                    (
                        (
                            "sum by (result) "
                            f"(rate({of('cellblock_image_imports_total')}[$__rate_interval])) * 60",
                            "{{result}}",
                        ),
                    ),
                    "stacked",
                    description="That steps asked for: found in the cache, fetched, or failed.",
                ),
                Panel(
                    "Bytes of images, a second",
                    (
                        (
                            "sum by (result) "
                            f"(rate({of('cellblock_image_imported_bytes_total')}[$__rate_interval]))",
                            "{{result}}",
                        ),
                    ),
                    "stacked",
                    "Bps",
                    description="Of their squashfs files.",
                ),
            ),
        ),
        (
            "Image",
            (Panel("Image", ((of("cellblock_jail_image_info"), ""),), "table", width=24),),
        ),
    ),
)

ALL = (CLUSTER, NODES, JOBS, CONTROLLER, JAIL)
