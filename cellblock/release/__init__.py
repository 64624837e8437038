# SPDX-License-Identifier: Apache-2.0
"""Publishes built images: finds them by name, audits, attests, signs and pushes them; and makes releases."""
