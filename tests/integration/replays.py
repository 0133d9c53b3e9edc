"""Every run that a test leaves is played again when the test is over: once from its record, and once more
with its cells. Each must be as it was, without a network: the model's address cannot be reached.

A test or a file for which less holds says so, with the reason:

    @pytest.mark.replayed("steps", "its cells print the time")
    pytestmark = pytest.mark.replayed("never", "these runs are damaged on purpose")

"executed" is what holds where nothing is said. With "steps" the outputs of cells may differ, nothing else;
with "recorded" no cell runs again; with "never" nothing is replayed.
"""

import concurrent.futures
import functools
import subprocess

from journal import Journal

WIDTH = 2
FLAGS = {"executed": [[], ["--execute"]], "steps": [[], ["--execute", "--ignore-output"]], "recorded": [[]],
         "never": []}
WITHOUT_NETWORK = ("unshare", "--map-root-user", "--net")


@functools.cache
def without_network():
    """What stands before a command that is to have no network: a user namespace, so that nobody needs to be
    root. Nothing where that is refused: then a test fails, and says why (test_replay.py)."""
    able = subprocess.run([*WITHOUT_NETWORK, "true"], capture_output=True).returncode == 0
    return WITHOUT_NETWORK if able else ()


def is_whole(run):
    """Whether a run stands there, undamaged."""
    try:
        return (run / "journal").is_file() and len(Journal(run).records) > 1
    except (AssertionError, OSError, ValueError):
        return False


def is_the_programs(run):
    """Whether the program made it, and not one of a test's own, which has other tools."""
    return is_whole(run) and "program" in Journal(run).records[0]["options"]


def flags_for(request):
    """The flags of each replay that a test's runs are to stand."""
    marker = request.node.get_closest_marker("replayed")
    return FLAGS[marker.args[0] if marker else "executed"]


def each(replay, runs):
    """Replays all of them, some at once; the first failure is raised."""
    with concurrent.futures.ThreadPoolExecutor(WIDTH) as pool:
        list(pool.map(replay, runs))


def replay_all(workspace, base, all_flags):
    """Replays every run of the program below a directory."""
    def replay(run):
        for flags in all_flags:
            done = workspace.run("replay", run, "-q", *flags, before=without_network())
            assert done.code == 0, f"the replay of {run} {' '.join(flags)} differs: {done.stderr}"

    runs = [journal.parent for journal in base.rglob("journal") if all_flags]
    each(replay, filter(is_the_programs, runs))
