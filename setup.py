# SPDX-License-Identifier: Apache-2.0
"""The one thing pyproject.toml cannot say: which extension modules cffi builds.

The launcher sets CELLBLOCK_WITHOUT_C where there may be no compiler: for tests that need nothing but Python.
It sets CELLBLOCK_WITHOUT_TESTS where nobody asked for tests.
"""

import os

from setuptools import setup

OF_PROGRAMS = ["native/cffi/image_core.py:ffi", "native/cffi/volume_scan.py:ffi"]
OF_TESTS = ["native/cffi/jail_core.py:ffi", "pyxis/build_cffi.py:ffi"]

modules = OF_PROGRAMS if os.environ.get("CELLBLOCK_WITHOUT_TESTS") else OF_PROGRAMS + OF_TESTS
setup(cffi_modules=[] if os.environ.get("CELLBLOCK_WITHOUT_C") else modules)
