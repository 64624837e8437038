# SPDX-License-Identifier: Apache-2.0
"""Provides what Prometheus and Grafana are given for a cluster: alert rules, and dashboards.

The exporter itself is a program of the image `metrics` (images/metrics).
"""
