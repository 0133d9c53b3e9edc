"""Drives of tests/tools/tool_host, the program with tools, that tests kill."""

import collections
import os
import struct
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from journal import Journal
from pythons import DEBIAN
from replays import each, flags_for, is_whole, without_network

LIMIT_S = 120  # a limit for what does not end, not a measure


@dataclass
class Ended:
    """How a drive ended; `killed` when it did not end by itself."""

    stdout: str
    stderr: str
    code: int

    @property
    def killed(self):
        return self.code < 0


class Host:
    """A run of tool_host: its journal and the log of what its tools did."""

    def __init__(self, program, workspace, run):
        self.program, self.workspace, self.run = program, workspace, Path(run)
        self.log = Path(f"{run}.log")

    def arguments(self, command, server, restore="replay", **options):
        """What the program is given for a drive: "run", "resume" or "replay"."""
        url = server.base_url if server else "http://127.0.0.1:1/v1"
        return [command, self.run, url, self.log, DEBIAN, restore, *(f"{k}={v}" for k, v in options.items())]

    def start(self, command, server, restore="replay", **options):
        """Starts a drive."""
        args = [*(() if server else without_network()), self.program,
                *self.arguments(command, server, restore, **options)]
        process = subprocess.Popen(args, env=self.workspace.environment(), cwd=self.workspace.cwd,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, start_new_session=True, text=True)
        self.workspace._started.append(process)
        return process

    def drive(self, command, server, restore="replay", kill=None, **options):
        """A drive to its end, or until `kill`, a function of the process, returns and it is killed."""
        process = self.start(command, server, restore, **options)
        if kill:
            kill(process)
            process.kill()
        try:
            out, err = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"{command} did not end\n{out}\n{err}") from None
        return Ended(out.removesuffix("\n"), err, process.returncode)

    @property
    def size(self):
        """Bytes of the journal."""
        try:
            return os.stat(self.run / "journal").st_size
        except OSError:
            return 0

    def at_size(self, size):
        """A `kill` for when the journal has grown to that size, or the drive has ended."""
        def wait(process):
            while process.poll() is None and self.size < size:
                time.sleep(0.0005)
        return wait

    @staticmethod
    def after(seconds):
        """A `kill` for some time after the start."""
        def wait(process):
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                pass
        return wait

    def counts(self):
        """How often each ("tool key") was performed."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return collections.Counter(lines)


@pytest.fixture
def make_host(request, build_dir, workspace, tmp_path):
    """make_host(name): a Host whose run has that name. When the test is over the runs are replayed (see
    replays.py)."""
    program, hosts = build_dir / "tests" / "tools" / "tool_host", []
    if not os.access(program, os.X_OK):
        pytest.fail(f"{program} is missing: build it first")

    def make(name):
        hosts.append(Host(program, workspace, tmp_path / f"{name}.rlm"))
        return hosts[-1]

    def replay(host):
        before = host.counts()
        for flags in flags_for(request):
            options = {"execute": 1} if "--execute" in flags else {}
            done = host.drive("replay", None, **options)
            assert done.code == 0, f"the replay of {host.run} {options} differs: {done.stderr}"
        assert host.counts() == before, f"the replay of {host.run} called a tool"

    yield make
    each(replay, [host for host in hosts if is_whole(host.run)])


def until(path, holds):
    """A `kill` for when the records of the journal at path fulfil something, or the drive has ended."""
    def wait(process):
        while process.poll() is None:
            try:
                if holds(Journal(path)):
                    return
            except (AssertionError, OSError, struct.error, ValueError):
                pass  # it is being written
            time.sleep(0.002)
        raise AssertionError(f"the drive ended before: {process.communicate()}")
    return wait


def results(path):
    """The tool calls whose results are written."""
    journal = Journal(path)
    started = {(r["agent"], r["cell"], r["call"]): r for r in journal.all("call_started")}
    done = set()
    for r in journal.all("call_finished"):
        call = started.get((r["agent"], r["cell"], r["call"]))
        if call and call["name"] in ("buy", "look"):
            done.add(f"{call['name']} {(call['args'] or [call['kwargs'].get('key')])[0]}")
    return done
