# SPDX-License-Identifier: Apache-2.0
"""Exports Slurm's figures to Prometheus, under the names of Slurm 26.05's own endpoints.

`poller` asks slurmctld at an interval, through a `Source`: `openmetrics` where slurmctld has these endpoints,
else `commands`. `server` answers Prometheus with the last answers. It needs only Python's standard library:
it is part of the image `metrics`, and cellblock/ does not import it.
"""
