# SPDX-License-Identifier: Apache-2.0
"""Makes metrics of sdiag's output about slurmctld and its schedulers. Times are microseconds, as there."""

from __future__ import annotations

import json
import re
from typing import Any

from cellblock_exporter.exposition import Text

# Name under slurm_ -> key of `sdiag --json`, label of `sdiag` ("" when it shows none), meaning.
_FIGURES: dict[str, tuple[str, str, str]] = {
    "agent_cnt": ("agent_count", "Agent count", "Agents, which send to nodes"),
    "agent_queue_size": ("agent_queue_size", "Agent queue size", "Messages to nodes that wait"),
    "agent_thread_cnt": ("agent_thread_count", "Agent thread count", "Threads of agents"),
    "server_thread_cnt": ("server_thread_count", "Server thread count", "Threads that serve requests"),
    "slurmdbd_queue_size": ("dbd_agent_queue_size", "DBD Agent queue size", "Records that wait for slurmdbd"),
    "sdiag_jobs_submitted": ("jobs_submitted", "Jobs submitted", "Jobs submitted since the reset"),
    "sdiag_jobs_started": ("jobs_started", "Jobs started", "Jobs started since the reset"),
    "sdiag_jobs_completed": ("jobs_completed", "Jobs completed", "Jobs completed since the reset"),
    "sdiag_jobs_canceled": ("jobs_canceled", "Jobs canceled", "Jobs cancelled since the reset"),
    "sdiag_jobs_failed": ("jobs_failed", "Jobs failed", "Jobs failed since the reset"),
    "sdiag_jobs_pending": ("jobs_pending", "Jobs pending", "Jobs that waited at slurm_sdiag_job_states_ts"),
    "sdiag_jobs_running": ("jobs_running", "Jobs running", "Jobs that ran at slurm_sdiag_job_states_ts"),
    "sdiag_job_states_ts": ("job_states_ts", "Job states ts", "Unix time of these two"),
    "sdiag_latency": (
        "gettimeofday_latency",
        "Latency for 1000 calls to gettimeofday()",
        "1000 calls to the clock",
    ),
    "sched_stats_timestamp": ("req_time", "sdiag output at", "Unix time of these statistics"),
    "last_proc_req_start": ("req_time_start", "Data since", "Unix time of the reset"),
    "schedule_cycle_cnt": ("schedule_cycle_total", "main/Total cycles", "Cycles of the main scheduler"),
    "schedule_cycle_last": ("schedule_cycle_last", "main/Last cycle", "Microseconds of the last cycle"),
    "schedule_cycle_max": ("schedule_cycle_max", "main/Max cycle", "Microseconds of the longest cycle"),
    "schedule_cycle_tot": ("schedule_cycle_sum", "", "Microseconds of all cycles"),
    "schedule_cycle_depth": ("schedule_cycle_depth", "", "Jobs looked at in all cycles"),
    "schedule_queue_len": ("schedule_queue_length", "main/Last queue length", "Jobs that wait"),
    "sched_mean_cycle": ("schedule_cycle_mean", "main/Mean cycle", "Microseconds of a cycle"),
    "sched_mean_depth_cycle": (
        "schedule_cycle_mean_depth",
        "main/Mean depth cycle",
        "Jobs looked at in a cycle",
    ),
    "sched_exit_end": ("schedule_exit/end_job_queue", "", "Cycles that ended at the queue's end"),
    "sched_exit_max_depth": (
        "schedule_exit/default_queue_depth",
        "",
        "Cycles that ended at default_queue_depth",
    ),
    "sched_exit_max_job_start": (
        "schedule_exit/max_job_start",
        "",
        "Cycles that ended at sched_max_job_start",
    ),
    "sched_exit_lic": ("schedule_exit/licenses", "", "Cycles that ended at licences"),
    "sched_exit_rpc_cnt": ("schedule_exit/max_rpc_cnt", "", "Cycles that ended at max_rpc_cnt"),
    "sched_exit_timeout": ("schedule_exit/max_sched_time", "", "Cycles that ended at max_sched_time"),
    "backfilled_jobs": (
        "bf_backfilled_jobs",
        "backfill/Total backfilled jobs (since last slurm start)",
        "Jobs started by backfill since slurmctld started",
    ),
    "last_backfilled_jobs": (
        "bf_last_backfilled_jobs",
        "backfill/Total backfilled jobs (since last stats cycle start)",
        "Jobs started by backfill since the reset",
    ),
    "backfilled_het_jobs": (
        "bf_backfilled_het_jobs",
        "backfill/Total backfilled heterogeneous job components",
        "Parts of heterogeneous jobs started by backfill",
    ),
    "bf_active": ("bf_active", "", "Whether backfill runs"),
    "bf_cycle_cnt": ("bf_cycle_counter", "backfill/Total cycles", "Cycles of backfill"),
    "bf_cycle_last": ("bf_cycle_last", "backfill/Last cycle", "Microseconds of the last cycle"),
    "bf_cycle_max": ("bf_cycle_max", "backfill/Max cycle", "Microseconds of the longest cycle"),
    "bf_cycle_tot": ("bf_cycle_sum", "", "Microseconds of all cycles"),
    "bf_mean_cycle": ("bf_cycle_mean", "backfill/Mean cycle", "Microseconds of a cycle"),
    "bf_depth_mean": ("bf_depth_mean", "backfill/Depth Mean", "Jobs looked at in a cycle"),
    "bf_try_depth_mean": ("bf_depth_mean_try", "backfill/Depth Mean (try depth)", "Jobs tried in a cycle"),
    "bf_depth_tot": ("bf_depth_sum", "", "Jobs looked at in all cycles"),
    "bf_depth_try_tot": ("bf_depth_try_sum", "", "Jobs tried in all cycles"),
    "bf_last_depth": ("bf_last_depth", "backfill/Last depth cycle", "Jobs looked at in the last cycle"),
    "bf_last_depth_try": (
        "bf_last_depth_try",
        "backfill/Last depth cycle (try sched)",
        "Jobs tried in the last cycle",
    ),
    "bf_queue_len": ("bf_queue_len", "backfill/Last queue length", "Jobs that waited in the last cycle"),
    "bf_queue_len_mean": ("bf_queue_len_mean", "backfill/Queue length mean", "Jobs that waited in a cycle"),
    "bf_queue_len_tot": ("bf_queue_len_sum", "", "Jobs that waited in all cycles"),
    "bf_table_size": ("bf_table_size", "backfill/Last table size", "Slots of time in the last cycle"),
    # 24.11 writes the mean length of the queue under bf_table_size_mean.
    "bf_mean_table_sz": ("", "backfill/Mean table size", "Slots of time in a cycle"),
    "bf_table_size_tot": ("bf_table_size_sum", "", "Slots of time in all cycles"),
    "bf_when_last_cycle": ("bf_when_last_cycle", "backfill/Last cycle when", "Unix time of the last cycle"),
    "bf_exit_end": ("bf_exit/end_job_queue", "", "Cycles that ended at the queue's end"),
    "bf_exit_max_job_start": ("bf_exit/bf_max_job_start", "", "Cycles that ended at bf_max_job_start"),
    "bf_exit_max_job_test": ("bf_exit/bf_max_job_test", "", "Cycles that ended at bf_max_job_test"),
    "bf_exit_state_changed": ("bf_exit/state_changed", "", "Cycles that ended at a change"),
    "bf_exit_table_limit": ("bf_exit/bf_node_space_size", "", "Cycles that ended at bf_node_space_size"),
    "bf_exit_timeout": ("bf_exit/bf_max_time", "", "Cycles that ended at bf_max_time"),
}
NAMES = tuple(f"slurm_{name}" for name in _FIGURES)
_SECTIONS = {"Main schedule statistics": "main/", "Backfilling stats": "backfill/", "Backfill exit": "exit/"}
_STAMP = re.compile(r"(sdiag output at|Data since|\s*Last cycle when:|Job states ts:)\s.*\((\d+)\)\s*")
_VALUE = re.compile(r"\s*(.+?):\s+(\d+)(?: microseconds)?\s*")


def read_json(output: str) -> dict[str, float]:
    """Name without slurm_ -> value, of `sdiag --json`. Raises ValueError for what is no such answer."""
    statistics = json.loads(output).get("statistics")
    if not isinstance(statistics, dict):
        raise ValueError("no statistics")
    values = {}
    for name, (key, _, _) in _FIGURES.items():
        found: Any = statistics
        for part in key.split("/"):
            found = found.get(part) if isinstance(found, dict) else None
        if isinstance(found, dict):
            found = found.get("number")
        if isinstance(found, (int, float)):
            values[name] = float(found)
    if "bf_table_size_tot" in values and "bf_cycle_cnt" in values:
        values["bf_mean_table_sz"] = float(int(values["bf_table_size_tot"] / max(values["bf_cycle_cnt"], 1)))
    return values


def read_text(output: str) -> dict[str, float]:
    """The same of `sdiag`: what it does not show is left out. Before the first cycle it shows no means: 0."""
    shown: dict[str, str] = {}
    section = ""
    for line in output.splitlines():
        if line.startswith("Remote Procedure Call"):
            break
        heading = next((mark for title, mark in _SECTIONS.items() if line.startswith(title)), None)
        if heading is not None:
            section = heading
            continue
        if not line.startswith(("\t", " ")) and line.strip():
            section = ""
        found = _STAMP.fullmatch(line) or _VALUE.fullmatch(line)
        if found:
            shown[section + found[1].strip().rstrip(":")] = found[2]
    if "Server thread count" not in shown:
        raise ValueError("no 'Server thread count' in sdiag's answer")
    return {name: float(shown.get(label, 0)) for name, (_, label, _) in _FIGURES.items() if label}


def write(text: Text, values: dict[str, float]) -> None:
    """The families of /metrics/scheduler."""
    for name, (_, _, meaning) in _FIGURES.items():
        if name in values:
            text.gauge(f"slurm_{name}", meaning, values[name])
