"""What pip calls to build the package (PEP 517): meson-python, and the tag of a wheel of the stable ABI.

python/meson.build chooses the stable ABI where it can be had. meson-python would be told of it by a key of
pyproject.toml that holds for all interpreters or none, and that Debian's version does not know.
"""
import subprocess
import sys
import zipfile
from pathlib import Path

import mesonpy


def __getattr__(name):
    """The other hooks, as many as this meson-python has."""
    return getattr(mesonpy, name)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = mesonpy.build_wheel(wheel_directory, config_settings, metadata_directory)
    path = Path(wheel_directory, name)
    with zipfile.ZipFile(path) as wheel:
        if "rlmflow/_engine.abi3.so" not in wheel.namelist():
            return name
    # For 3.11 and newer, whichever of them has built it.
    told = subprocess.run([sys.executable, "-m", "wheel", "tags", "--remove", "--python-tag=cp311", "--abi-tag=abi3",
                           str(path)], check=True, stdout=subprocess.PIPE, text=True)
    return told.stdout.split()[-1]
