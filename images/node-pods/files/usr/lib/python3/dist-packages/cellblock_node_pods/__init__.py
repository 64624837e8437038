# SPDX-License-Identifier: Apache-2.0
"""Makes and removes the pods of nodes on demand, as slurmctld wants them.

`node_requests` reads what slurmctld wants from a folder that its container writes, `api` talks to
Kubernetes, `decide` decides from both what is to be done, and `reconcile_loop` does it. A pod has the name
of its node, so a list of the pods says what was done before this program was killed, and nothing needs to be
remembered.
"""
