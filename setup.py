"""The one thing pyproject.toml cannot say: which extension modules cffi builds.

The launcher sets CELLBLOCK_WITHOUT_C where there may be no compiler: for tests that need nothing but Python.
"""

import os

from setuptools import setup

MODULES = [
    "spank_jail/build_cffi.py:ffi",
    "enroot/build_cffi.py:ffi",
    "pyxis/build_cffi.py:ffi",
    "cellblock/jail/scan/build_cffi.py:ffi",
]

setup(cffi_modules=[] if os.environ.get("CELLBLOCK_WITHOUT_C") else MODULES)
