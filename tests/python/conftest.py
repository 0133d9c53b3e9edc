"""The tests of the Python package run on its files in the source tree and the extension of a build with
-Dpython=true: `build`, or RLMFLOW_BUILD."""
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("RLMFLOW_BUILD", ROOT / "build")).resolve()
PYTHON = "/usr/bin/python3"  # of the sessions


def make_package():
    """A directory with the package as it is installed."""
    site = BUILD / "python" / "site"
    package = site / "rlmflow"
    package.mkdir(parents=True, exist_ok=True)
    own = ROOT / "python" / "rlmflow"
    files = [*own.glob("*.py*"), own / "py.typed", *(BUILD / "python").glob("_engine*.so"),
             BUILD / "python" / "_worker.py"]
    for old in package.iterdir():
        if old.is_symlink():
            old.unlink()
    for file in files:
        (package / file.name).symlink_to(file)
    return site


SITE = make_package()
sys.path[:0] = [str(SITE), str(ROOT / "tests")]

from pythons import report  # noqa: E402


def pytest_terminal_summary(terminalreporter):
    if "test_wheel" in sys.modules:
        for line in report("wheels were", 9, 13):
            terminalreporter.write_line(line)


@pytest.fixture
def runtime():
    import rlmflow

    return rlmflow.SubprocessRuntime(python=PYTHON)
