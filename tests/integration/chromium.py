"""A real browser for tests of the page: headless Chromium, driven over a pipe by its devtools protocol."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time

import pytest

LIMIT_S = 60  # for one answer: a bound on a hang, not a measure

# The browser reads commands from descriptor 3 and writes to 4.
_LAUNCH = ("import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4);"
           " os.execv(sys.argv[3], sys.argv[3:])")


def find():
    """The path of Chromium or Chrome, or None."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next(filter(None, map(shutil.which, names)), None)


class Browser:
    """One page of a browser of its own. `events` are what it reported, in order."""

    def __init__(self, directory, width=1280, height=860):
        program = find()
        if not program:
            pytest.fail("no Chromium or Chrome is on the PATH, so the page cannot be tested here: install it"
                        " (apt-get install chromium, or scripts/install-deps check)")
        self.events = []
        self._last_id = 0
        self._session = None
        self._buffer = b""
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        for fd in (to_read, to_write):  # 3 and 4 are where they shall go, not where they come from
            assert fd > 2
        high = [os.dup(fd) for fd in (to_read, to_write)]
        while min(high) < 5:
            high = [os.dup(fd) for fd in high]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, *map(str, high), program, "--headless", "--no-sandbox",
             "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
             "--disable-background-networking", f"--window-size={width},{height}",
             f"--user-data-dir={directory}/profile", "--remote-debugging-pipe", "about:blank"],
            pass_fds=high, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=open(directory / "chromium.log", "wb"), start_new_session=True,
            env={**os.environ, "HOME": str(directory)})
        for fd in {to_read, to_write, *high}:
            os.close(fd)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")

    def _receive(self):
        deadline = time.monotonic() + LIMIT_S
        while b"\0" not in self._buffer:
            ready = select.select([self._read], [], [], max(0, deadline - time.monotonic()))[0]
            assert ready, "the browser says nothing"
            data = os.read(self._read, 1 << 20)
            assert data, "the browser has ended"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def call(self, method, **params):
        """One command of the protocol and its result."""
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data):]
        while True:
            message = self._receive()
            if message.get("id") == self._last_id:
                assert "error" not in message, message
                return message["result"]
            self.events.append(message)

    def open(self, path, fragment=""):
        """Opens a file and waits until it is loaded."""
        self.events.clear()
        self.call("Page.navigate", url=f"file://{path}{fragment}")
        while not self.all("Page.loadEventFired"):
            self.events.append(self._receive())

    def all(self, method):
        """The parameters of the events of that name."""
        return [e["params"] for e in self.events if e.get("method") == method]

    def run(self, script):
        """The value of an expression in the page (of a promise: what it comes to)."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, condition):
        """Waits until an expression is true in the page."""
        found = self.run(
            f"new Promise((done) => {{ const until = Date.now() + {LIMIT_S * 500};"
            f" const look = () => {condition} ? done(true) : Date.now() > until ? done(false)"
            " : setTimeout(look, 10); look(); })")
        assert found, f"never came true in the page: {condition}"

    def press(self, *keys):
        """Presses keys by name ("ArrowDown", "/"), one after the other."""
        for key in keys:
            text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
            self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def type(self, text):
        """Types into what has the focus."""
        self.call("Input.insertText", text=text)

    def problems(self):
        """What the page did that it must not do: requests, errors, refusals."""
        requests = [e["request"]["url"] for e in self.all("Network.requestWillBeSent")]
        wrong = [url for url in requests[1:] if not url.startswith("data:")]
        wrong += [e["exceptionDetails"] for e in self.all("Runtime.exceptionThrown")]
        return wrong + [e["entry"]["text"] for e in self.all("Log.entryAdded")]

    def close(self):
        """Ends the browser with all its processes."""
        try:
            self._session = None
            self.call("Browser.close")
            self._process.wait(LIMIT_S)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            pass
        finally:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._process.wait()
            os.close(self._read)
            os.close(self._write)
