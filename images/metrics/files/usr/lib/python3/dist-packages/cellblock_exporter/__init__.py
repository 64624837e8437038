# SPDX-License-Identifier: Apache-2.0
"""An exporter of Slurm's figures for Prometheus, under the names of Slurm 26.05's own endpoints.

`poller` asks slurmctld once an interval, by a `Source`: `openmetrics` where slurmctld has these endpoints,
else `commands`. `server` answers scrapes with the last answers. Needs nothing but Python's standard library:
it is part of the image `metrics`, and the orchestrator does not import it.
"""
