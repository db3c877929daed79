"""The one part that is compiled; without a compiler, NumPy does its work."""

import sys

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "relval.envs.atari._frames",
            ["src/relval/envs/atari/_frames.c"],
            # Contracted products would be more exact than those that it must equal.
            extra_compile_args=[] if sys.platform == "win32" else ["-O3", "-ffp-contract=off"],
            py_limited_api=True,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
