"""Fixtures of the integration tests.

They need the packages of tests/requirements.txt, and for tests of the program a build: the
directory is `build` in the root of the source tree, or RLMFLOW_BUILD.
"""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from program import Workspace, become_subreaper, reset_signals, script_text  # noqa: E402
from pythons import report  # noqa: E402
from replays import flags_for, replay_all  # noqa: E402
from server import ModelServer  # noqa: E402

OLDEST, NEWEST = 8, 13  # the minor versions of Python 3 that the workers are for


def pytest_configure(config):
    config.addinivalue_line("markers", "replayed(how, why): how its runs can be played again (replays.py)")
    become_subreaper()
    reset_signals()


def pytest_terminal_summary(terminalreporter):
    for line in report("workers were", OLDEST, NEWEST):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def build_dir():
    """The directory of the build under test."""
    return Path(os.environ.get("RLMFLOW_BUILD", ROOT / "build")).resolve()


@pytest.fixture(scope="session")
def rlmflow_program(build_dir):
    """The path of the program; a failure when it has not been built."""
    path = build_dir / "rlmflow"
    if not os.access(path, os.X_OK):
        pytest.fail(f"{path} is missing: build it first (make build), or set RLMFLOW_BUILD")
    return path


@pytest.fixture
def make_server():
    """A function that starts a ModelServer with the given options; all end with the test."""
    servers = []

    def make(rules=(), **options):
        server = ModelServer(rules, **options)
        server.start()
        servers.append(server)
        return server

    yield make
    faults = []
    for server in servers:
        server.stop()
        faults += server.app.faults
    assert not faults, "the test server or a rule's callable failed:\n" + "\n".join(faults)


@pytest.fixture
def server(make_server):
    """A ModelServer without rules: give it some with `server.set_rules([...])`."""
    return make_server()


@pytest.fixture
def workspace(request, rlmflow_program, tmp_path):
    """The directories and environment the program runs in (see program.Workspace). The test fails
    when a run that it left is not the same when it is replayed (see replays.py), or when a process, a
    mount, or a file in TMPDIR or HOME is left after it."""
    space = Workspace(rlmflow_program, tmp_path)
    yield space
    try:
        replay_all(space, tmp_path, flags_for(request))
    finally:
        problems = space.problems()
    assert not problems, "\n".join(problems)


@pytest.fixture
def run_rlmflow(workspace):
    """run_rlmflow(*args, input=None, env=None, timeout=60, cwd=None): runs the program and returns
    a program.Result with stdout, stderr, code."""
    return workspace.run


@pytest.fixture
def start_rlmflow(workspace):
    """start_rlmflow(*args, env=None, cwd=None): starts the program and returns its Popen, for tests
    that interrupt or kill it."""
    return workspace.start


@pytest.fixture
def scripted_model(tmp_path):
    """scripted_model(script, name="model.script"): writes a file of replies and returns what
    --model takes. `script` is the file's text, or (attributes, body) pairs (see
    program.script_text)."""
    def write(script, name="model.script"):
        path = tmp_path / name
        text = script if isinstance(script, (str, bytes)) else script_text(script)
        path.write_bytes(text.encode("utf-8") if isinstance(text, str) else text)
        return f"script:{path}"

    return write
