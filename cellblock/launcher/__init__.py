# SPDX-License-Identifier: Apache-2.0
"""From `python3 build.py` to the command: makes .venv, and answers what needs none.

Standard library only: these modules run before anything is installed.
"""
