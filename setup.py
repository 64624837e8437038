"""The one thing pyproject.toml cannot say: which extension modules cffi builds."""

from setuptools import setup

setup(
    cffi_modules=[
        "spank_jail/build_cffi.py:ffi",
        "enroot/build_cffi.py:ffi",
        "pyxis/build_cffi.py:ffi",
        "cellblock/jail/scan/build_cffi.py:ffi",
    ]
)
