"""Runs the built program for tests, in a clean environment, and sees that nothing stays behind.

Every process that a test starts carries RLMFLOW_TEST_ID, which is looked for in /proc/*/environ. A
session's environment is cleared, so this process is also the subreaper of its descendants: whatever
outlives its parent becomes a child of ours and is found in that way.
"""

import ctypes
import os
import re
import signal
import subprocess
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
TEST_ID = "RLMFLOW_TEST_ID"
GRACE_S = 10  # a limit for the end of what is already ending, not a measure

# What a sanitizer or a coverage run needs to reach the program.
_PASSED_ON = ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "LLVM_PROFILE_FILE",
              "GCOV_PREFIX", "LD_LIBRARY_PATH")

# Not the caller's: what stands first there may need the caller's HOME to work.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def script_text(replies):
    """The text of a scripted model's file (docs/scripted-model.md) from (attributes, body) pairs;
    bodies may hold any text."""
    lines = []
    for attributes, body in replies:
        words = ["@reply"]
        for name, value in attributes.items():
            value = str(value)
            if not value or set(value) & set(' \t"'):
                value = '"' + value.replace('"', '\\"') + '"'
            words.append(f"{name}={value}")
        lines.append(" ".join(words))
        for line in body.split("\n"):
            escaped = re.match(r"@+(reply|comment)(\s|$)", line)
            lines.append("@" + line if escaped else line)
    return "\n".join(lines) + "\n"


def reset_signals():
    """What a shell had this process ignore (SIGINT and SIGQUIT of a job in the background, SIGHUP under nohup),
    its children would ignore too; a handler of Python's becomes the default in them."""
    for number in (signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def become_subreaper():
    """Orphans among our descendants become our children from now on."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


@dataclass
class Result:
    """How a run ended. Bytes that are not UTF-8 are surrogates in the texts; `code` is negative for
    a signal, as in subprocess."""

    stdout_bytes: bytes
    stderr_bytes: bytes
    code: int

    @property
    def stdout(self):
        """What was printed, as text."""
        return self.stdout_bytes.decode("utf-8", "surrogateescape")

    @property
    def stderr(self):
        """The diagnostics, as text."""
        return self.stderr_bytes.decode("utf-8", "surrogateescape")


def _as_bytes(text):
    return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text


def _parent_and_state(pid):
    """(parent, state letter) of a process, or None when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    state, parent = stat.rpartition(b")")[2].split()[:2]
    return int(parent), state.decode()


def children():
    """Process ids of our children, zombies too."""
    found = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            known = _parent_and_state(entry.name)
            if known is not None and known[0] == os.getpid():
                found.add(int(entry.name))
    return found


def marked(test_id):
    """Process ids whose environment carries the mark of a test."""
    mark = f"{TEST_ID}={test_id}".encode()
    found = set()
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            environment = Path(f"/proc/{entry.name}/environ").read_bytes()
        except OSError:
            continue
        if mark in environment.split(b"\0"):
            found.add(int(entry.name))
    return found


def _describe(pid):
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        words = b""
    return f"{pid}: {words.decode('utf-8', 'replace').strip()[:200] or '?'}"


class Workspace:
    """The directories and the environment of one test, and the program in them.

    `cwd`, `home`, `tmp`, `state`, `config`, `cache` are directories under the test's own.
    """

    def __init__(self, program, base):
        self.program = program
        self.test_id = uuid.uuid4().hex
        self.base = base / "rlmflow"
        for name in ("cwd", "home", "tmp", "state", "config", "cache"):
            directory = self.base / name
            directory.mkdir(parents=True, mode=0o700)
            setattr(self, name, directory)
        self._before = children()
        self._mounts_before = self._mounts()
        self._started = []

    def environment(self, more=None):
        """The environment of a run; a value of None in `more` removes a variable."""
        result = {
            "PATH": _PATH, "LANG": "C.UTF-8",
            "HOME": str(self.home), "TMPDIR": str(self.tmp),
            "XDG_STATE_HOME": str(self.state), "XDG_CONFIG_HOME": str(self.config),
            "XDG_CACHE_HOME": str(self.cache), "NO_PROXY": "127.0.0.1,localhost",
            TEST_ID: self.test_id,
        }
        result.update({k: os.environ[k] for k in _PASSED_ON if k in os.environ})
        # What a sanitizer finds fails the test, whatever the test looks at.
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS"):
            given = os.environ.get(name)
            result[name] = f"{given + ':' if given else ''}log_path={self.base}/sanitizer"
        for name, value in (more or {}).items():
            if value is None:
                result.pop(name, None)
            else:
                result[name] = str(value)
        return result

    def start(self, *args, env=None, cwd=None, stdin=subprocess.DEVNULL, before=(), **options):
        """Starts the program in a process group of its own and returns the Popen, its stdout and
        stderr pipes. It is killed at the end of the test when it still runs, which is a failure.
        `before`: a command that runs it."""
        command = [*before, str(self.program), *(os.fspath(a) if isinstance(a, os.PathLike) else str(a)
                                        for a in args)]
        process = subprocess.Popen(
            command, env=self.environment(env), cwd=cwd or self.cwd, stdin=stdin,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, **options)
        self._started.append(process)
        return process

    def run(self, *args, input=None, env=None, timeout=60, cwd=None, before=()):
        """Runs the program to its end. `input` (text or bytes) is its stdin. An AssertionError with
        what it printed when it takes more than `timeout` seconds."""
        process = self.start(*args, env=env, cwd=cwd, before=before,
                             stdin=subprocess.DEVNULL if input is None else subprocess.PIPE)
        try:
            out, err = process.communicate(_as_bytes(input), timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            raise AssertionError(
                f"rlmflow {' '.join(map(str, args))} did not end within {timeout} s\n"
                f"stdout: {out.decode('utf-8', 'replace')}\n"
                f"stderr: {err.decode('utf-8', 'replace')}") from None
        return Result(out, err, process.returncode)

    def _mounts(self):
        return {line for line in Path("/proc/self/mountinfo").read_text().splitlines()
                if str(self.base) in line}

    def _living(self):
        """What still runs, without zombies, which are reaped."""
        ours = {process.pid for process in self._started}
        found = set()
        for pid in (children() - self._before) | marked(self.test_id):
            known = _parent_and_state(pid)
            if known is None:
                continue
            if known[1] == "Z":
                if known[0] == os.getpid() and pid not in ours:
                    try:
                        os.waitpid(pid, os.WNOHANG)
                    except ChildProcessError:
                        pass
                continue
            found.add(pid)
        return found

    def problems(self):
        """What was left behind, as a list of sentences; processes are killed. To be called once,
        at the end."""
        deadline = time.monotonic() + GRACE_S
        living = self._living()
        while living and time.monotonic() < deadline:
            time.sleep(0.01)
            living = self._living()
        result = [f"a process is left: {_describe(pid)}" for pid in sorted(living)]
        for pid in living:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in self._started:
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        for name in ("tmp", "home"):
            result += [f"a file is left in the test's {name}: {path.name}"
                       for path in getattr(self, name).iterdir()]
        result += [f"a sanitizer says: {path.read_text(errors='replace')[:4000]}"
                   for path in self.base.glob("sanitizer.*")]
        result += [f"a mount is left: {line}" for line in self._mounts() - self._mounts_before]
        return result
