# SPDX-License-Identifier: Apache-2.0
"""Runs first when a person types `python3 build.py`: makes .venv, and answers what needs none.

Standard library only: these modules run before anything is installed.
"""
