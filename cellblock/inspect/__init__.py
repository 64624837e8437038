# SPDX-License-Identifier: Apache-2.0
"""Looking at images, records and inputs: differences, the graph, the report. It changes nothing."""
