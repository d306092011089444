"""Builds the wheel: pure Python plus one C++ library, so it is tied to a platform but not to a Python version."""

import importlib.util
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent


def load_build_module():
    """headrace_kernels/build.py by its path: importing the package would need torch."""
    spec = importlib.util.spec_from_file_location("headrace_kernels_build", HERE / "headrace_kernels" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class BuildWithLibrary(build_py):
    """Compiles the library straight into the package that is packed; in an editable install, into the checkout."""

    def run(self):
        super().run()
        native = load_build_module()
        if self.editable_mode:
            if not native.is_current():
                native.build()
        else:
            native.build(Path(self.build_lib) / native.LIBRARY.relative_to(HERE))


class PlatformWheel(bdist_wheel):
    """Any Python 3, this platform."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class PlatformDistribution(Distribution):
    """Says that the wheel is not pure Python."""

    def has_ext_modules(self):
        return True


setup(distclass=PlatformDistribution, cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel})
