"""The program on a pseudo-terminal of its own, and somebody who types there."""

import fcntl
import os
import re
import select
import signal
import subprocess
import termios
import threading
import time

import pytest


class Person:
    """The program on a terminal of its own, and somebody who types."""

    def __init__(self, workspace, *args, env=None, columns=None, hangup=signal.SIG_DFL, live=False):
        self.control, self.side = os.openpty()
        if columns:
            termios.tcsetwinsize(self.side, (24, columns))
        self.before = termios.tcgetattr(self.side)
        self.text, self.taken, self.left = b"", 0, False
        self.process = subprocess.Popen(
            [str(workspace.program), *map(str, args)], cwd=workspace.cwd,
            env=workspace.environment({"TERM": "dumb", **(env or {})}),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.side if live else subprocess.PIPE,
            start_new_session=True, preexec_fn=lambda: self._prepare(hangup))
        workspace._started.append(self.process)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _prepare(self, hangup):
        fcntl.ioctl(self.side, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGHUP, hangup)

    def _read(self):
        while not self.left:
            try:
                if not select.select([self.control], [], [], 0.05)[0]:
                    continue
                data = os.read(self.control, 65536)
            except OSError:
                return
            self.text += data

    def sees(self, pattern, timeout_s=30):
        """Waits for new text on the terminal that ends so, and returns all that is new."""
        deadline = time.monotonic() + timeout_s
        while not re.search(pattern, self.text[self.taken:]):
            assert time.monotonic() < deadline and self.process.poll() is None, self.text
            time.sleep(0.01)
        new = self.text[self.taken:].decode()
        self.taken = len(self.text)
        return new.replace("\r\n", "\n")

    def types(self, keys):
        os.write(self.control, keys.encode())

    def end(self, code, timeout_s=30):
        """Waits for the program; its stdout and stderr."""
        out, err = self.process.communicate(timeout=timeout_s)
        after = termios.tcgetattr(self.side)
        os.close(self.side)
        self.reader.join(5)
        os.close(self.control)
        assert after == self.before
        assert self.process.returncode == code, (out, err, self.text)
        return out.decode().strip(), err.decode()

    def leaves(self):
        """The terminal vanishes."""
        self.left = True
        self.reader.join()
        os.close(self.side)
        os.close(self.control)


@pytest.fixture
def person(workspace):
    """person(*args, **options): a Person with the program and these arguments."""
    return lambda *args, **options: Person(workspace, *args, **options)
