# SPDX-License-Identifier: Apache-2.0
"""What Prometheus and Grafana are given for a cluster: rules, and dashboards made of typed Python.

The exporter itself is a program of the image `metrics` (images/metrics).
"""
