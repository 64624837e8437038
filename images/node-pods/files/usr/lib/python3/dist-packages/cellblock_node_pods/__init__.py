# SPDX-License-Identifier: Apache-2.0
"""Makes and removes the pods of nodes on demand, as Slurm wants it.

`node_requests` reads what Slurm wants from a folder that slurmctld's container writes, `api` speaks to
Kubernetes, `decide` says from both what is to be done, and `reconcile_loop` does it. Nothing is remembered
that matters: a pod is called as its node is, so a list of the pods says what was done before this program
was killed.
"""
