# SPDX-License-Identifier: Apache-2.0
"""Writes the configuration of a CI service that builds all variants (`build.py matrix`).

matrix.py plans the jobs; github.py and gitlab.py write them for their services.
"""
