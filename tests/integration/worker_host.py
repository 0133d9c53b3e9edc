"""A host for the worker, small enough to test it alone: the other end of docs/protocol.md."""
import array
import base64
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STUB_HEADER = os.path.join(ROOT, "src", "runtime", "stub.h")
HEADER = struct.Struct("<IBBHQ")
KINDS = ("open ready start resume suspended finished wake yield interrupt close text bytes body credit blob "
         "sync output fatal").split()
NUMBERS = {name: i + 1 for i, name in enumerate(KINDS)}
END, DESCRIPTOR, HAS_BODY = 1, 2, 4
DEADLINE_S = 10


# The text that a worker runs, of the parts in worker/ as they are now.
SOURCE = subprocess.run([sys.executable, os.path.join(ROOT, "scripts", "join-worker.py")],
                        stdout=subprocess.PIPE, check=True).stdout.decode()


def stub():
    """The text of RLM_WORKER_STUB."""
    define = re.search(r"#define RLM_WORKER_STUB\b.*?\n\n", open(STUB_HEADER).read(), re.S)[0]
    lines = re.findall(r'^    ("(?:[^"\\]|\\.)*")', define, re.M)
    return "".join(json.loads(line) for line in lines)


class Ended(Exception):
    """The worker has closed its end."""


class Host:
    """Starts a worker and speaks with it; every wait has a deadline."""

    def __init__(self, python, way="local", program=None, source=SOURCE, **open_members):
        """`way`: "local", a socket in and a pipe out as the engine has them; "pipes" or "socket" for both.
        `program` replaces the stub, `source` the worker."""
        self.sent = 0
        self.received = 0
        self.buffer = b""
        self.bodies = {}
        self.values = {}
        self.credit = {}
        self.window = {}
        self.outputs = []
        self.ready = None
        self.broken = False
        self.in_cell = False
        self.wakes = 0
        self.next_stream = 0
        environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8",
                       "TZ": "UTC", "PYTHONHASHSEED": "0"}
        self.socket = None
        if way == "pipes":
            theirs_in, self.wfd = os.pipe()
        else:
            self.socket, theirs = socket.socketpair()
            self.wfd = self.socket.fileno()
            theirs_in = theirs.detach()
        if way == "socket":
            self.rfd, theirs_out = self.wfd, theirs_in
        else:
            self.rfd, theirs_out = os.pipe()
        passed = (theirs_in, theirs_out)
        self.process = subprocess.Popen(
            [python, "-s", "-u", "-c", program or stub(), str(passed[0]), str(passed[1])], env=environment,
            pass_fds=set(passed), stdin=subprocess.DEVNULL, start_new_session=True)
        for fd in set(passed):
            os.close(fd)
        source = source.encode()
        self.write(struct.pack("<I", len(source)) + source)
        self.before_open = []
        self.open_members = open_members
        self.cell = 0

    # Bytes and frames.

    def write(self, data):
        data = memoryview(data)
        while data:
            data = data[os.write(self.wfd, data):]

    def send_raw(self, kind, payload=b"", flags=0, stream=0, fd=-1):
        self.sent += 1
        data = HEADER.pack(len(payload), NUMBERS[kind], flags, stream, self.sent) + payload
        if fd >= 0:
            n = self.socket.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
            data = data[n:]
        self.write(data)

    def send(self, kind, message):
        payload = json.dumps(message).encode()
        if len(payload) <= 64 * 1024:
            self.send_raw(kind, payload)
        else:
            stream = self.send_stream("body", payload)
            self.send_raw(kind, b"", HAS_BODY, stream)

    def send_stream(self, kind, data, stream=None):
        if stream is None:
            self.next_stream += 1
            stream = self.next_stream
        credit = 1 << 20
        for i in range(0, max(len(data), 1), 256 * 1024):
            chunk = data[i:i + 256 * 1024]
            last = i + 256 * 1024 >= len(data)
            while credit < len(chunk):
                frame = self.read_frame()
                assert frame[0] == "credit" and frame[2] == stream, frame
                credit += struct.unpack("<I", frame[3])[0]
            credit -= len(chunk)
            self.send_raw(kind, chunk, END if last else 0, stream)
        return stream

    def read_frame(self, timeout=DEADLINE_S):
        """(kind, flags, stream, payload)"""
        deadline = time.monotonic() + timeout
        while True:
            if len(self.buffer) >= 16:
                length, kind, flags, stream, sequence = HEADER.unpack_from(self.buffer)
                if len(self.buffer) >= 16 + length:
                    payload = self.buffer[16:16 + length]
                    self.buffer = self.buffer[16 + length:]
                    self.received += 1
                    assert sequence == self.received, "sequence"
                    assert length <= 1 << 20
                    return KINDS[kind - 1], flags, stream, payload
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.rfd], [], [], left)[0]:
                self.broken = True
                raise TimeoutError("the worker said nothing for %s s" % timeout)
            data = os.read(self.rfd, 1 << 20)
            if not data:
                self.broken = True
                raise Ended
            self.buffer += data

    def read(self, timeout=DEADLINE_S):
        """The next control frame, (kind, message); takes in streams on the way."""
        while True:
            kind, flags, stream, payload = self.read_frame(timeout)
            if kind in ("text", "bytes", "body"):
                self.take_stream(kind, flags, stream, payload)
            elif kind == "credit":
                pass
            elif kind == "output":
                self.outputs.append(json.loads(payload))
            elif kind == "fatal":
                raise AssertionError("fatal: %s" % payload.decode())
            else:
                if flags & HAS_BODY:
                    payload = self.bodies.pop(stream)
                self.in_cell = self.in_cell and kind != "finished"
                return kind, json.loads(payload)

    def take_stream(self, kind, flags, stream, payload):
        assert stream and len(payload) <= 256 * 1024
        used = self.window.get(stream, 1 << 20) - len(payload)
        assert used >= 0, "a stream passed its credit"
        self.values.setdefault(("open", stream), []).append(payload)
        if flags & END:
            self.window.pop(stream, None)
            data = b"".join(self.values.pop(("open", stream)))
            if kind == "body":
                self.bodies[stream] = data
            else:
                self.values[stream] = data.decode("utf-8", "surrogatepass") if kind == "text" else data
            return
        if used < 512 * 1024:
            self.send_raw("credit", struct.pack("<I", 512 * 1024), 0, stream)
            used += 512 * 1024
        self.window[stream] = used

    # The session.

    def blob_streamed(self, name, value):
        is_text = isinstance(value, str)
        data = value.encode("utf-8", "surrogatepass") if is_text else value
        self.next_stream += 1
        stream = self.next_stream
        self.send_raw("blob", json.dumps(self.about(name, value, data)).encode(), 0, stream)
        self.send_stream("text" if is_text else "bytes", data, stream)

    def blob_with_descriptor(self, name, value):
        is_text = isinstance(value, str)
        data = value.encode("utf-8", "surrogatepass") if is_text else value
        about = self.about(name, value, data)
        if is_text:
            codec = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[about["width"]]
            data = value.encode(codec, "strict" if about["width"] == 1 else "surrogatepass")
        fd = os.memfd_create("blob")
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view):]
            self.send_raw("blob", json.dumps(about).encode(), DESCRIPTOR, 0, fd)
        finally:
            os.close(fd)

    @staticmethod
    def about(name, value, data):
        about = {"id": name, "type": "text" if isinstance(value, str) else "bytes", "bytes": len(data)}
        if isinstance(value, str):
            top = max(map(ord, set(value)), default=0)
            about.update(chars=len(value), width=1 if top < 256 else 2 if top < 65536 else 4, ascii=top < 128)
        return about

    def open(self):
        message = {"protocol": 1, "seed": "0123456789abcdef", "agent_id": "root", "depth": 0, "max_depth": 2,
                   "parent_agent_id": "", "env": {"RLMFLOW_AGENT_ID": "root"}, "inputs": {}, "tools": [],
                   "file_tools": True, "output_schema": False, "limits": {"output_bytes": 1 << 20}}
        message.update(self.open_members)
        self.send("open", message)
        kind, self.ready = self.read()
        assert kind == "ready", kind
        return self

    def start(self, code):
        self.cell += 1
        self.in_cell = True
        self.send("start", {"cell": self.cell, "code": code})

    def resume(self, *results):
        self.send("resume", {"results": list(results)})

    def run(self, code, answers=None):
        """Runs a cell to its end; `answers(call)` gives RESULT members for each call."""
        self.start(code)
        return self.drive(answers)

    def drive(self, answers=None):
        self.calls = []
        while True:
            kind, message = self.read()
            if kind == "finished":
                assert message["cell"] == self.cell
                return message
            if kind == "wake":
                self.resume()
                continue
            assert kind == "suspended", kind
            results = []
            for call in message["calls"]:
                self.calls.append(call)
                results.append(dict(id=call["id"], **answers(call)))
            self.resume(*results)

    def value(self, encoded):
        """A call's value, decoded as far as tests need it."""
        if isinstance(encoded, dict) and "$stream" in encoded:
            return self.values.pop(encoded["$stream"])
        if isinstance(encoded, dict) and "$bytes" in encoded:
            return base64.b64decode(encoded["$bytes"])
        return encoded

    def close(self):
        if self.process.poll() is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        for fd in {self.rfd, self.wfd}:
            os.close(fd)
        if self.socket is not None:
            self.socket.detach()

    def __enter__(self):
        return self if self.ready else self.open()

    def __exit__(self, *exc):
        self.close()
