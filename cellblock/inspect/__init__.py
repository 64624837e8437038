# SPDX-License-Identifier: Apache-2.0
"""Looks at images, records of builds and inputs: differences, the graph, the report. It changes nothing."""
