"""The program inside every session: it holds an agent's namespace and runs its cells.

The host starts `python3 -s -u -c STUB RFD WFD` with a cleared environment (PATH, HOME, LANG,
TZ=UTC, PYTHONHASHSEED=0). STUB is RLM_WORKER_STUB of src/runtime/stub.h: it takes '' from sys.path, reads
u32 length and so many bytes of source from RFD, and runs that source, this file, in a module of its
own with `protocol = (RFD, WFD)`. A host that forks warm interpreters runs the source without
`protocol`, calls `preload()` once, and `serve(RFD, WFD)` in each child. The engine's own workers have
a socket as RFD, for it passes descriptors, and a pipe as WFD, whose reader wakes sooner.

The frames are those of docs/protocol.md. Only the standard library, Python 3.8 and newer.

Who does what:

- The main thread blocks in recv while idle, runs the cell itself and sends `finished`. There is no
  hand-over to another thread in an ordinary cell.
- The monitor thread sleeps in poll. When a cell lasts it listens to the host's stream too, so that
  `yield` and `interrupt` are heard in mid-computation; it also empties the pipe that stands on
  descriptors 1 and 2, and sends `output` frames. Cells of microseconds pass it unnoticed.
- Whoever reads the stream holds `Session.reading`: the main thread while idle, while it waits in a
  synchronous host call and while its event loop has nothing to do; the monitor otherwise.
- An interrupt is a flag, set by the reader. If the reader is the monitor it also sends a signal
  (SIGRTMIN + 7, so that a SIGINT or SIGALRM handler of the agent's does not stand in the way), every
  10 ms until the exception has been raised. The handler raises only when the agent's code is at
  work, never inside the worker's own.
"""
import sys

# A worker starts for every agent, so what is imported here is written in C or loaded by every
# interpreter: `_ast` for `ast`, `_socket` for `socket`, and so on. The rest is imported where it is
# needed; see `Imports`.
import _ast
import _signal
import _socket
import _thread
import _warnings
import binascii
import builtins
import codecs
import fcntl
import io
import os
import select
import time
from _collections import deque
from _collections_abc import Iterator, Mapping, MappingView, coroutine as Coroutine
from _json import encode_basestring_ascii as quote, make_scanner
from _struct import Struct, calcsize, iter_unpack

WORKER_FILE = "<worker>"
MAIN_THREAD = _thread.get_ident()

# Kinds and flags of frames.
OPEN, READY, START, RESUME, SUSPENDED, FINISHED, WAKE, YIELD, INTERRUPT, CLOSE = range(1, 11)
TEXT, BYTES, BODY, CREDIT, BLOB, SYNC, OUTPUT, FATAL = range(11, 19)
END, DESCRIPTOR, HAS_BODY = 1, 2, 4

HEADER = Struct("<IBBHQ")
CREDIT_PAYLOAD = Struct("<I")
MAX_PAYLOAD = 1 << 20
MAX_CHUNK = 256 * 1024
MAX_CONTROL = 64 * 1024
MAX_VALUE = 1 << 30
FIRST_CREDIT = 1 << 20
STREAM_FROM = 64 * 1024

MAX_DEPTH = 100  # of a value
MAX_PIECES = 4096  # of output, before they are joined
PIPE_LOOK_SECONDS = 0.0005  # a print() looks so often whether descriptors 1 and 2 were written to
OUTPUT_MS = 200  # between two `output` frames
INTERRUPT_MS = 10  # between two signals of an interrupt that has not been raised yet
TICK_MS = 3  # of the monitor; two of them must be less than the 10 ms in which `yield` is answered
QUIET_TICKS = 30
OUTPUT_FRAME_CHARS = 48 * 1024
ECHO_CHARS = 64 * 1024
TRACEBACK_CHARS = 20000
MOST_NAMES = 500  # that a cell's end tells of
SETTLE_SECONDS = 1.0  # for cancelled tasks at the end of a cell
SIGNAL = _signal.SIGRTMIN + 7 if hasattr(_signal, "SIGRTMIN") else _signal.SIGUSR2

monotonic = time.monotonic


class Json:
    """Reads JSON with the C scanner of the json module, which looks up these names."""

    strict = True
    object_pairs_hook = None
    parse_float = parse_constant = float
    parse_int = int

    def __init__(self, object_hook=None):
        self.object_hook = object_hook
        self.scan = make_scanner(self)

    def read(self, payload):
        return self.scan(payload.decode("utf-8", "surrogatepass"), 0)[0]


read_json = Json().read


def quote_all(texts):
    return "[%s]" % ",".join(map(quote, texts))


def quote_members(members):
    return "{%s}" % ",".join("%s:%s" % (quote(k), quote(v)) for k, v in members.items())


# Code of this file that calls the agent's, or that may be left at any point: where one of these is
# the worker's innermost frame, an interrupt may be raised.
AGENT_BELOW = set()


def calls_agent(function):
    AGENT_BELOW.add(function.__code__)
    return function


class Imports:
    """Tells when a module has been imported, so that it is prepared for the session only then."""

    def __init__(self):
        self.actions = {}
        sys.meta_path.insert(0, self)

    def when(self, name, action):
        """Calls `action(module)` once: at once if there is such a module, else when there is."""
        if name in sys.modules:
            action(sys.modules[name])
        else:
            self.actions.setdefault(name, []).append(action)

    def find_spec(self, name, path=None, target=None):
        """As the other finders say; of a module that somebody waits for, the loader is watched."""
        if name not in self.actions:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None:
                self.watch(spec.loader, self.actions.pop(name))
                return spec
        return None

    def watch(self, loader, actions):
        def exec_module(module):
            del loader.exec_module
            loader.exec_module(module)
            for action in actions:
                action(module)

        loader.exec_module = exec_module


# ---- exceptions and values that the agent's code sees --------------------------------------------


class CellEnded(BaseException):
    """The answer was accepted: the cell ends. Nothing needs to catch this."""


# Event loops hand on only KeyboardInterrupt and SystemExit at once; of any other BaseException in a
# task the cell would not hear while it waits for something else.
class CellInterrupted(KeyboardInterrupt):
    """The host ends the cell: a clock ran out or the run is stopped."""


class StopLoop(KeyboardInterrupt):
    """Leaves the event loop of a cell whose answer was accepted inside a task."""


class InputNameError(NameError):
    """A name that belongs to an input or to the API was given a new value."""


class HostCallError(Exception):
    """A host call failed; `reason`, `message` and `agent_id` say how."""

    def __init__(self, message="", reason="", agent_id=""):
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.agent_id = agent_id


class ToolInterrupted(HostCallError):
    """A call was under way when the session was interrupted; whether it had an effect is unknown."""


class Failure(str):
    """Stands where a result would: a child or prompt that failed. The text is `[reason: message]`."""

    def __new__(cls, reason="", message="", agent_id=""):
        self = super().__new__(cls, "[%s: %s]" % (reason, message))
        self.reason = reason
        self.message = message
        self.agent_id = agent_id
        return self

    def __reduce__(self):
        return (Failure, (self.reason, self.message, self.agent_id))


AGENT_CLASSES = (
    CellEnded, CellInterrupted, InputNameError, HostCallError, ToolInterrupted, Failure)
for _class in AGENT_CLASSES:
    _class.__module__ = "__main__"

def make_error(error):
    """The exception for the error of a RESULT."""
    kind, message = error.get("type", ""), error.get("message", "")
    for known in (ValueError, TypeError, KeyError, FileNotFoundError, CellEnded):
        if known.__name__ == kind:
            return known(message)
    of_host = ToolInterrupted if kind == "ToolInterrupted" else HostCallError
    return of_host(message, error.get("reason") or "", error.get("agent_id") or "")


# ---- output --------------------------------------------------------------------------------------


class ForkWarning:
    """Matches Python's warning of threads in a process that forks: the monitor is no danger to a
    child, as it takes no lock that one needs. Stands where warnings would have a compiled pattern."""

    @staticmethod
    def match(text):
        return "use of fork" in text


def gap(around, chars, what):
    return "%s... [%s %s] ...%s" % (around, format(chars, ","), what, around)


def cut_middle(text, limit, around="\n"):
    half = limit // 2
    if len(text) <= limit:
        return text
    return text[:half] + gap(around, len(text) - 2 * half, "characters left out") + text[-half:]


class Output:
    """What cells print: the first half of the limit, then a ring of the tail. Any thread may add."""

    def __init__(self):
        self.lock = _thread.RLock()
        self.pipe = -1
        self.next_look = 0.0
        self.decoder = lenient_decoder()
        self.set_limit(1 << 20)

    def set_limit(self, chars):
        self.half = max(chars // 2, 1)
        self.clear()

    def clear(self):
        self.head = []
        self.room = self.half
        self.tail = []
        self.tail_chars = 0
        self.omitted = 0

    def add(self, text):
        chars = len(text)
        with self.lock:
            room = self.room
            if chars <= room:
                self.room = room - chars
                self.head.append(text)
                if len(self.head) > MAX_PIECES:
                    self.head = ["".join(self.head)]
                return
            if room:
                self.head.append(text[:room])
                self.room = 0
            start = max(room, chars - self.half)
            self.omitted += start - room
            self.tail.append(text[start:])
            self.tail_chars += chars - start
            if self.tail_chars > 2 * self.half or len(self.tail) > MAX_PIECES:
                self.cut_tail()

    def cut_tail(self):
        tail = "".join(self.tail)
        cut = max(len(tail) - self.half, 0)
        self.omitted += cut
        self.tail = [tail[cut:]]
        self.tail_chars = len(tail) - cut

    def text(self, limit=None):
        """The text and how many characters it lacks; `limit`: no more than about so many."""
        with self.lock:
            if self.tail:
                self.cut_tail()
            head, tail, omitted = "".join(self.head), "".join(self.tail), self.omitted
        if limit is not None and len(head) + len(tail) > limit:
            half = limit // 2
            if not omitted:
                head, tail = head[:half], head[half:] + tail
            omitted += max(len(head) - half, 0) + max(len(tail) - half, 0)
            head, tail = head[:half], tail[-half:]
        if omitted:
            head += gap("\n", omitted, "characters omitted")
        return head + tail, omitted

    def mark(self):
        """Differs when text was added."""
        return self.room, self.tail_chars, self.omitted

    def take(self):
        """The text of the cell that ends, and the number of characters it lacks."""
        with self.lock:
            if self.tail:
                result = self.text()
                self.clear()
                return result
            text = "".join(self.head)
            self.head.clear()
            self.room = self.half
            return text, 0

    def drain(self):
        """Takes what stands in the pipe of descriptors 1 and 2; never waits."""
        try:
            if not self.has_piped(0):
                return
        except RuntimeError:
            pass  # another thread asks at this moment; reading tells as well
        with self.lock:
            try:
                for _ in range(16):
                    data = os.read(self.pipe, 65536)
                    self.add(self.decoder.decode(data))
                    if len(data) < 65536:
                        break
            except OSError:
                pass

    def open_pipe(self):
        """Puts a pipe on descriptors 1 and 2, and nothing on 0."""
        read_end, write_end = os.pipe()
        self.pipe = move_high(read_end)
        os.close(read_end)
        os.set_blocking(self.pipe, False)
        poll = select.poll()
        poll.register(self.pipe, select.POLLIN)
        self.has_piped = poll.poll
        for number in (1, 2):
            os.dup2(write_end, number)
        os.close(write_end)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)


class OutputBytes(io.BufferedIOBase):
    """`sys.stdout.buffer`."""

    def __init__(self, stream):
        self.stream = stream
        self.decoder = lenient_decoder()

    def write(self, data):
        data = bytes(memoryview(data))
        self.stream.write(self.decoder.decode(data))
        return len(data)

    def writable(self):
        return True

    def fileno(self):
        return self.stream.number

    def close(self):
        pass


class OutputStream(io.TextIOBase):
    """`sys.stdout` and `sys.stderr`."""

    encoding = "utf-8"
    errors = "surrogateescape"
    mode = "w"

    def __init__(self, session, number, name):
        self.session = session
        self.output = session.output
        self.number = number
        self.name = name
        self.buffer = OutputBytes(self)

    @calls_agent
    def write(self, text):
        if type(text) is not str:
            if not isinstance(text, str):
                raise TypeError("write() argument must be str, not %s" % type(text).__name__)
            text = str.__str__(text)
        output = self.output
        now = monotonic()
        if now > output.next_look:
            output.next_look = now + PIPE_LOOK_SECONDS
            output.drain()
            # Where a loop does nothing but print, the monitor gets its turn in drain() only.
            self.session.check_interrupt()
        chars = len(text)
        with output.lock:
            if chars <= output.room and len(output.head) < MAX_PIECES:
                output.head.append(text)
                output.room -= chars
            else:
                output.add(text)
        return chars

    def write_plainly(self, text):
        """In a forked child."""
        write_all(self.number, text.encode("utf-8", "backslashreplace"))
        return len(text)

    def writable(self):
        return True

    def fileno(self):
        return self.number

    def close(self):
        pass

    def reconfigure(self, **options):
        pass


class NoInput(io.TextIOWrapper):
    """`sys.stdin`: always at its end, and never closed (`exit()` would)."""

    def close(self):
        pass


def lenient_decoder():
    return codecs.getincrementaldecoder("utf-8")("backslashreplace")


def write_all(fd, data):
    data = memoryview(data)
    while data:
        data = data[os.write(fd, data):]


# ---- frames --------------------------------------------------------------------------------------


def leave(status=0):
    """Ends the process at once; the host ends what it started."""
    os._exit(status)


def flush_files():
    """Writes out what open files still hold, as the end of an interpreter does."""
    import gc

    for thing in gc.get_objects():
        if type(thing) in (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom):
            try:
                thing.flush()
            except (OSError, ValueError):
                pass


def move_high(fd):
    """A close-on-exec copy out of the way of what the agent's code opens."""
    for lowest in (700, 200, 60, 10):
        try:
            return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, lowest)
        except OSError:
            continue
    return os.dup(fd)


class Channel:
    """Frames over the host's stream. Many may send; one reads at a time (Session.reading)."""

    def __init__(self, rfd, wfd):
        self.rfd = move_high(rfd)
        self.wfd = self.rfd if rfd == wfd else move_high(wfd)
        for fd in {rfd, wfd}:
            if fd > 2:
                os.close(fd)
        for fd in {self.rfd, self.wfd}:
            os.set_blocking(fd, True)
        try:
            self.socket = _socket.socket(fileno=self.rfd)
        except OSError:
            self.socket = None
        self.send_lock = _thread.allocate_lock()
        self.sent = 0
        self.received = 0
        self.buffer = bytearray()
        self.descriptors = deque()
        self.streams_in = {}
        self.owed = {}
        self.bodies = {}
        self.blobs_in = {}
        self.credit = {}
        self.last_stream = 0
        self.on_blob = None
        self.wait_for_credit = None

    # Sending.

    def send_frame(self, kind, payload, flags=0, stream=0):
        with self.send_lock:
            self.sent += 1
            data = HEADER.pack(len(payload), kind, flags, stream, self.sent) + payload
            try:
                sent = os.write(self.wfd, data)
                if sent < len(data):
                    write_all(self.wfd, memoryview(data)[sent:])
            except OSError:
                leave()

    def send(self, kind, payload):
        self.send_frame(kind, *self.send_ahead(payload))

    def send_ahead(self, payload):
        """(payload, flags, stream) of a control frame; what is too large for it goes ahead as a body."""
        if len(payload) <= MAX_CONTROL:
            return payload, 0, 0
        view = memoryview(payload)
        return b"", HAS_BODY, self.send_stream(
            BODY, (view[i:i + MAX_CHUNK] for i in range(0, len(payload), MAX_CHUNK)))

    def send_stream(self, kind, chunks):
        """Sends the chunks (at most MAX_CHUNK each) as far as credit goes; the stream's number."""
        with self.send_lock:
            number = self.last_stream
            while True:
                number = number % 65535 + 1
                if number not in self.credit:
                    break
            self.last_stream = number
            self.credit[number] = FIRST_CREDIT
        used = 0
        try:
            for chunk in chunks:
                used += len(chunk)
                while self.credit[number] < used:
                    self.wait_for_credit()
                self.send_frame(kind, bytes(chunk), 0, number)
        finally:
            self.send_frame(kind, b"", END, number)
            del self.credit[number]
        return number

    # Receiving.

    def receive(self, block):
        """The frames that have come, as (kind, payload); waits for bytes if `block`."""
        data = self.read(block)
        if data is None:
            return ()
        if not data:
            leave()
        if not self.buffer and len(data) >= 16:
            length, kind, flags, stream, sequence = HEADER.unpack_from(data)
            if len(data) == 16 + length and kind < TEXT and not flags:
                self.check(kind, length, sequence)
                return ((kind, data[16:]),)
        self.buffer += data
        return self.cut()

    def read(self, block):
        if self.socket is None:
            if not block and not select.select([self.rfd], [], [], 0)[0]:
                return None
            return os.read(self.rfd, 65536)
        try:
            flags = 0 if block else _socket.MSG_DONTWAIT
            data, ancillary, _, _ = self.socket.recvmsg(65536, 256, flags)
        except BlockingIOError:
            return None
        except ConnectionError:
            leave()
        if ancillary:
            for level, kind, content in ancillary:
                if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                    for fd, in iter_unpack("i", content[:len(content) // 4 * 4]):
                        self.descriptors.append(move_high(fd))
                        os.close(fd)
        return data

    def check(self, kind, length, sequence):
        self.received += 1
        if sequence != self.received or length > MAX_PAYLOAD:
            self.fatal("frame %d of kind %d came where frame %d was due"
                       % (sequence, kind, self.received))

    def fatal(self, message):
        self.send_frame(FATAL, ('{"message":%s}' % quote(message)).encode()[:MAX_CONTROL])
        leave(1)

    def cut(self):
        buffer = self.buffer
        frames = []
        while len(buffer) >= 16:
            length, kind, flags, stream, sequence = HEADER.unpack_from(buffer)
            if length > MAX_PAYLOAD:
                self.check(kind, length, sequence)
            if len(buffer) < 16 + length:
                break
            payload = bytes(memoryview(buffer)[16:16 + length])
            del buffer[:16 + length]
            self.check(kind, length, sequence)
            if flags & HAS_BODY:
                payload = self.bodies.pop(stream)
            if kind in (TEXT, BYTES, BODY):
                self.add_to_stream(kind, flags, stream, payload)
            elif kind == CREDIT:
                if stream in self.credit:
                    self.credit[stream] += CREDIT_PAYLOAD.unpack(payload)[0]
            elif kind == BLOB:
                self.begin_blob(flags, stream, read_json(payload))
            elif kind == SYNC:
                self.send_frame(SYNC, b'{"received":%d}' % self.received)
            else:
                frames.append((kind, payload))
        return frames

    def add_to_stream(self, kind, flags, stream, payload):
        chunks = self.streams_in.setdefault(stream, [])
        chunks.append(payload)
        if not flags & END:
            owed = self.owed.get(stream, 0) + len(payload)
            if owed >= MAX_CHUNK:
                self.send_frame(CREDIT, CREDIT_PAYLOAD.pack(owed), 0, stream)
                owed = 0
            self.owed[stream] = owed
            return
        del self.streams_in[stream]
        self.owed.pop(stream, None)
        if kind == BODY:
            self.bodies[stream] = b"".join(chunks)
        elif stream in self.blobs_in:
            data = b"".join(chunks)
            del chunks
            self.on_blob(self.blobs_in.pop(stream), data, -1)

    def begin_blob(self, flags, stream, about):
        if flags & DESCRIPTOR:
            if not self.descriptors:
                self.fatal("a blob's descriptor did not come with it")
            self.on_blob(about, None, self.descriptors.popleft())
        else:
            self.blobs_in[stream] = about


# ---- texts that are mapped -----------------------------------------------------------------------


class MappedText:
    """Makes objects of exactly type `str` whose characters are a mapped file.

    An instance of a subclass of `str` holds its characters outside of the object, so its data pointer
    can be changed. It is made from one character of the same kind, which sets all bits of its state;
    then data and length are exchanged, the collector forgets it, and its type becomes `str`. It is
    never freed. All offsets are checked against what must stand there before anything is written.
    """

    SAMPLES = {(1, True): "a", (1, False): "\xe9", (2, False): "\u0101", (4, False): "\U00010001"}

    def __init__(self):
        import ctypes
        import gc

        self.ctypes = ctypes
        self.gc = gc
        old = sys.version_info < (3, 12)
        self.utf8_length = 48 if old else 40
        self.utf8 = self.utf8_length + 8
        self.wstr = 40 if old else None
        self.wstr_length = self.utf8 + 8 if old else None
        self.data = self.utf8 + (16 if old else 8)
        libc = ctypes.CDLL(None, use_errno=True)
        self.mmap = libc.mmap
        self.mmap.restype = ctypes.c_void_p
        self.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                              ctypes.c_int, ctypes.c_long]
        self.untrack = ctypes.pythonapi.PyObject_GC_UnTrack
        self.untrack.argtypes = [ctypes.py_object]
        self.untrack.restype = None

    def word(self, obj, offset):
        return self.ctypes.c_ssize_t.from_address(id(obj) + offset)

    def new(self, fd, chars, width, is_ascii):
        """The text in a file of `chars` units of `width` bytes; raises where the layout is unknown."""
        sample = self.SAMPLES[width, is_ascii]
        kept_class = type("Text", (str,), {"__slots__": ()})
        text = kept_class(sample)
        if sys.implementation.name != "cpython" or calcsize("P") != 8:
            raise RuntimeError("the interpreter is no 64-bit CPython")
        if (self.word(text, 8).value != id(kept_class) or self.word(text, 16).value != 1
                or kept_class.__basicsize__ != self.data + 8):
            raise RuntimeError("the interpreter lays out texts in an unknown way")
        at = self.word(text, self.data).value
        expected = ord(sample).to_bytes(width, sys.byteorder)
        if not at or self.ctypes.string_at(at, width) != expected:
            raise RuntimeError("the interpreter lays out texts in an unknown way")
        if is_ascii and self.word(text, self.utf8).value != at:
            raise RuntimeError("the interpreter lays out ASCII texts in an unknown way")
        base = self.map(fd, chars * width)
        self.word(text, self.data).value = base
        self.word(text, 16).value = chars
        self.word(text, 24).value = -1
        self.word(text, self.utf8).value = base if is_ascii else 0
        self.word(text, self.utf8_length).value = chars if is_ascii else 0
        if self.wstr is not None and width == 4:
            self.word(text, self.wstr).value = base
            self.word(text, self.wstr_length).value = chars
        if self.gc.is_tracked(text):
            self.untrack(text)
        self.ctypes.pythonapi.Py_IncRef(self.ctypes.py_object(text))
        self.word(text, 8).value = id(str)
        return text

    def map(self, fd, size):
        """Maps the file with at least four zero bytes behind it."""
        page = os.sysconf("SC_PAGE_SIZE")
        whole = (size // page + 1) * page
        base = self.mmap(None, whole, 1, 0x22, -1, 0)
        if base in (None, self.ctypes.c_void_p(-1).value):
            raise MemoryError("no room to map %d bytes" % size)
        if size and self.mmap(base, size, 1, 0x02 | 0x10, fd, 0) != base:
            raise OSError(self.ctypes.get_errno(), "cannot map a text")
        return base

    def check_itself(self):
        """Raises unless texts made this way behave."""
        for (width, is_ascii), sample in self.SAMPLES.items():
            plain = sample * 5000 + "xyz" + sample
            data = encode_units(plain, width)
            fd = os.memfd_create("rlmflow")
            try:
                write_all(fd, data)
                text = self.new(fd, len(plain), width, is_ascii)
            finally:
                os.close(fd)
            if not (type(text) is str and text == plain and hash(text) == hash(plain)
                    and text[4999:5004] == plain[4999:5004] and text.find("xyz") == 5000
                    and text.isascii() == is_ascii and {text: 1}[plain] == 1
                    and text.encode() == plain.encode() and len(text + "!") == len(plain) + 1):
                raise RuntimeError("a mapped text of width %d misbehaves" % width)


def unit_codec(width):
    return "latin-1" if width == 1 else "utf-%d-%s" % (width * 8, sys.byteorder[0] + "e")


def encode_units(text, width):
    """The text as units of 1, 2 or 4 bytes in this machine's order."""
    return text.encode(unit_codec(width), "strict" if width == 1 else "surrogatepass")


def decode_units(data, width):
    return data.decode(unit_codec(width), "strict" if width == 1 else "surrogatepass")


# ---- values --------------------------------------------------------------------------------------


class Values:
    """The encoding of values, both ways, and the blobs that this session was given."""

    def __init__(self, session):
        self.session = session
        self.channel = session.channel
        self.channel.on_blob = self.take_blob
        self.by_hash = {}
        self.hashes = {}
        self.mapper = None
        self.why = None
        self.decoders = {
            "$blob": self.by_hash.__getitem__,
            "$failure": lambda v: Failure(
                v.get("reason", ""), v.get("message", ""), v.get("agent_id", "")),
            "$dir": lambda v: DirectoryInput(session, v["name"], v["files"]),
            "$bytes": binascii.a2b_base64,
            "$dict": dict,
            "$float": float,
            "$frozenset": frozenset,
            "$set": set,
            "$tuple": tuple,
        }

    def can_map(self):
        if self.mapper is None and self.why is None:
            try:
                mapper = MappedText()
                mapper.check_itself()
                self.mapper = mapper
            except Exception as e:
                self.why = str(e) or type(e).__name__
        return self.mapper is not None

    # Blobs.

    def take_blob(self, about, data, fd):
        value = self.blob_from_descriptor(about, fd) if fd >= 0 else data
        if fd < 0 and about["type"] == "text":
            value = data.decode("utf-8", "surrogatepass")
        self.by_hash[about["id"]] = value
        self.hashes[id(value)] = about["id"]

    def blob_from_descriptor(self, about, fd):
        try:
            if about["type"] != "text":
                return read_whole(fd, about["bytes"])
            chars, width = about["chars"], about["width"]
            size = chars * width
            if chars and os.fstat(fd).st_size == size and self.can_map():
                return self.mapper.new(fd, chars, width, bool(about["ascii"]))
            return decode_units(read_whole(fd, size), width)
        finally:
            os.close(fd)

    # To the agent.

    def decode_object(self, obj):
        """`object_hook` of the JSON reader."""
        if len(obj) == 1:
            (key, value), = obj.items()
            decode = self.decoders.get(key)
            if decode is not None:
                return decode(value)
        return obj

    # From the agent.

    def encode(self, value, path, depth=0, above=()):
        """The value as JSON; `path` names it in errors. Sends big texts and bytes ahead."""
        kind = type(value)
        if kind is str:
            return quote(value) if len(value) < 256 else self.encode_large(value, kind)
        if value is None:
            return "null"
        if kind is bool:
            return "true" if value else "false"
        if kind is int:
            return repr(value)
        if kind is float:
            return repr(value) if value - value == 0 else '{"$float":"%r"}' % value
        if kind in (list, dict, tuple, set, frozenset):
            if id(value) in above:
                raise ValueError("%s contains itself" % path)
            if depth >= MAX_DEPTH:
                raise ValueError("%s is nested more than %d deep" % (path, MAX_DEPTH))
            return self.encode_container(value, kind, path, depth + 1, above + (id(value),))
        if kind is bytes:
            return self.encode_large(value, kind)
        if kind is DirectoryInput:
            return '{"$dir":{"name":%s}}' % quote(value.name)
        return self.encode_other(value, path, depth, above)

    def encode_container(self, value, kind, path, depth, above):
        encode = self.encode
        if kind is dict:
            if all(type(k) is str and not k.startswith("$") for k in value):
                return "{%s}" % ",".join(
                    ["%s:%s" % (quote(k), encode(v, Path(path, k), depth, above))
                     for k, v in value.items()])
            return '{"$dict":[%s]}' % ",".join(
                ["[%s,%s]" % (encode(k, Path(path, k), depth, above),
                              encode(v, Path(path, k), depth, above)) for k, v in value.items()])
        items = ",".join([encode(v, Path(path, i), depth, above) for i, v in enumerate(value)])
        return "[%s]" % items if kind is list else '{"$%s":[%s]}' % (kind.__name__, items)

    def encode_large(self, value, kind):
        """A text or bytes, by name if it is a blob, else by value or on a stream."""
        known = self.hashes.get(id(value))
        if known is not None:
            return '{"$blob":%s}' % quote(known)
        size = len(value)
        if size > MAX_VALUE:
            raise ValueError("a value of %s bytes is too large to send; the limit is 1 GiB"
                             % format(size, ","))
        if kind is bytes:
            if size < STREAM_FROM:
                return '{"$bytes":"%s"}' % binascii.b2a_base64(value, newline=False).decode()
            return '{"$stream":%d}' % self.channel.send_stream(BYTES, (
                value[i:i + MAX_CHUNK] for i in range(0, size, MAX_CHUNK)))
        if size < STREAM_FROM and len(encode_utf8(value)) < STREAM_FROM:
            return quote(value)
        step = MAX_CHUNK // 4
        return '{"$stream":%d}' % self.channel.send_stream(TEXT, (
            encode_utf8(value[i:i + step]) for i in range(0, size, step)))

    def encode_other(self, value, path, depth, above):
        """Subclasses of plain types go as these; for everything else the error says what to do."""
        for base, plain in ((str, str.__str__), (int, int.__int__), (float, float.__float__),
                            (dict, dict), (list, list), (tuple, tuple),
                            ((bytes, bytearray, memoryview), bytes)):
            if isinstance(value, base):
                return self.encode(plain(value), path, depth, above + (id(value),))
        raise TypeError("%s is %s, which cannot be sent to the host%s" % (
            path, describe_kind(value), advice_for(value)))


def encode_utf8(text):
    return text.encode("utf-8", "surrogatepass")


class Path:
    """`specs[2]["inputs"]`, put together only when an error needs it."""

    __slots__ = ("above", "key")

    def __init__(self, above, key):
        self.above = above
        self.key = key

    def __str__(self):
        key = repr(self.key) if not isinstance(self.key, str) else quote(self.key)
        return "%s[%s]" % (self.above, key[:80])


def describe_kind(value):
    kind = type(value)
    if isinstance(value, Coroutine):
        return "a coroutine (`await` is missing)"
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = "%s.%s" % (kind.__module__, name)
    if isinstance(value, type):
        return "the class %s" % value.__qualname__
    return "%s %s" % ("an" if name[0] in "aeiouAEIOU" else "a", name)


def advice_for(value):
    kind = type(value)
    name = kind.__name__
    package = kind.__module__.split(".")[0]
    if isinstance(value, type) and hasattr(value, "model_json_schema"):
        return "; use %s.model_json_schema()" % value.__name__
    for fits, what in (
            (package == "numpy", ".tolist()" if name == "ndarray" else ".item()"),
            (package == "pandas", ".to_dict()" if name in ("DataFrame", "Series") else "str()"),
            (hasattr(kind, "__dataclass_fields__"), "dataclasses.asdict()"),
            (hasattr(kind, "model_dump"), ".model_dump()"),
            (hasattr(kind, "isoformat"), ".isoformat()"),
            (hasattr(kind, "total_seconds"), ".total_seconds()"),
            (isinstance(value, os.PathLike) or name in ("Decimal", "Fraction", "UUID"), "str()"),
            (isinstance(value, (range, Iterator, MappingView)), "list()")):
        if fits:
            return "; use " + what
    if name in ("function", "builtin_function_or_method", "method"):
        return ""
    return "; send None, bool, int, float, str, bytes, or lists, tuples, sets and dicts of these"


def read_whole(fd, size):
    data = bytearray()
    while len(data) < size:
        chunk = os.pread(fd, min(size - len(data), 1 << 24), len(data))
        if not chunk:
            raise ValueError("a blob's file is shorter than the blob")
        data += chunk
    return bytes(data)


# ---- the session: who has the word, calls and their results --------------------------------------


class Call:
    """A host call that waits for its answer; `event` or `future` is its waiter's."""

    __slots__ = ("id", "body", "loop", "future", "event", "done", "value", "error")

    def __init__(self, body):
        self.id = 0
        self.body = body
        self.loop = self.future = self.event = self.error = self.value = None
        self.done = False

    def answer(self, value, error):
        """Hands the result to its waiter, in whatever thread that is."""
        self.value = value
        self.error = error
        self.done = True
        if self.event is not None:
            self.event.release()
        elif self.future is not None:
            if asyncio_running_loop() is self.loop or self.loop.is_closed():
                self.settle()
            else:
                try:
                    self.loop.call_soon_threadsafe(self.settle)
                except RuntimeError:
                    pass

    def settle(self):
        if not self.future.done() and not self.loop.is_closed():
            self.future.set_result(None)

    def result(self):
        if self.error is not None:
            raise make_error(self.error)
        return self.value


def asyncio_running_loop():
    asyncio = sys.modules.get("asyncio")
    return asyncio._get_running_loop() if asyncio is not None else None


class Session:
    """State that the threads share. `lock` guards the word and the calls.

    The worker has the word from a `start` or `resume` until it answers with `suspended` or `finished`.
    """

    def __init__(self, rfd, wfd):
        self.channel = Channel(rfd, wfd)
        self.channel.wait_for_credit = self.wait_for_credit
        self.imports = Imports()
        self.output = Output()
        self.values = Values(self)
        self.read_values = Json(self.values.decode_object).read
        self.lock = _thread.RLock()
        self.reading = _thread.allocate_lock()
        self.reader = None
        self.monitor = Monitor(self)
        self.cell = 0
        self.in_cell = False
        self.agent_runs = False
        self.turn = 0
        self.has_word = False
        self.woken = False
        self.ended = False
        self.forked = False
        self.interrupt = None
        self.new_calls = []
        self.pending = {}
        self.unanswered = set()
        self.last_id = 0
        self.starts = deque()
        self.opened = None

    # Frames that come.

    def pump(self, block):
        """Reads and handles what has come; the caller holds `reading`."""
        for kind, payload in self.channel.receive(block):
            self.handle(kind, payload)

    def handle(self, kind, payload):
        if kind == RESUME:
            self.resumed(self.read_values(payload))
        elif kind == START:
            read = self.read_values if b'"recovered":' in payload else read_json
            self.starts.append(read(payload))
        elif kind == YIELD:
            with self.lock:
                if self.has_word:
                    self.suspend()
        elif kind == INTERRUPT:
            if self.in_cell or self.starts:
                self.interrupt = read_json(payload)
        elif kind == CLOSE:
            flush_files()
            leave()
        elif kind == OPEN:
            self.opened = self.read_values(payload)

    def resumed(self, message):
        with self.lock:
            self.has_word = True
            was_woken, self.woken = self.woken, False
            for result in message["results"]:
                self.unanswered.discard(result["id"])
                call = self.pending.pop(result["id"], None)
                if call is not None:
                    call.answer(result.get("value"), result.get("error"))
            if was_woken and self.new_calls:
                self.suspend()

    def start_reading(self):
        """The main thread takes the stream; returns when no other reads it."""
        self.agent_runs = False
        self.reading.acquire()
        self.reader = MAIN_THREAD

    def stop_reading(self):
        self.reader = None
        self.reading.release()
        self.turn += 1
        self.agent_runs = True
        if self.monitor.sleeping:
            self.monitor.wake()

    def wait_for_credit(self):
        if self.reader == _thread.get_ident():
            self.pump(True)
        else:
            time.sleep(0.0005)

    def check_interrupt(self):
        if self.interrupt is not None and _thread.get_ident() == MAIN_THREAD and self.in_cell:
            self.raise_interrupt()

    def raise_interrupt(self):
        message, self.interrupt = self.interrupt.get("message", ""), None
        raise CellInterrupted(message)

    # The word.

    def suspend(self):
        """Gives the word back, with the calls that are new; `lock` is held."""
        self.has_word = False
        calls, self.new_calls = self.new_calls, []
        texts = []
        for call in calls:
            self.last_id += 1
            call.id = self.last_id
            self.pending[call.id] = call
            self.unanswered.add(call.id)
            texts.append('{"id":%d,%s' % (call.id, call.body))
        payload = '{"calls":[%s],"pending":[%s]}' % (
            ",".join(texts), ",".join(map(str, self.pending)))
        self.channel.send(SUSPENDED, payload.encode())

    def offer(self):
        """There is nothing to do but to wait: makes the calls that are new."""
        with self.lock:
            if self.new_calls:
                if self.has_word:
                    self.suspend()
                else:
                    self.wake()

    def wake(self):
        if not self.woken:
            self.woken = True
            self.channel.send_frame(WAKE, b"{}")

    # Calls.

    def new_call(self, name, args, kwargs):
        if self.forked:
            raise RuntimeError("%s() works in the session's own process only, not in one that it "
                               "forked" % name)
        if self.ended:
            raise CellEnded("the answer was accepted")
        self.check_interrupt()
        encode = self.values.encode
        return Call('"name":%s,"args":[%s],"kwargs":{%s}}' % (
            quote(name), ",".join([encode(value, path) for path, value in args]),
            ",".join(["%s:%s" % (quote(k), encode(v, k)) for k, v in kwargs.items()])))

    def register(self, call):
        with self.lock:
            if not self.in_cell:
                raise HostCallError("no cell is running; host calls are possible while one runs",
                                    "no_cell", "")
            self.new_calls.append(call)

    def forget(self, call):
        """Nobody waits for this answer any more."""
        with self.lock:
            if call.id:
                self.pending.pop(call.id, None)
            elif call in self.new_calls:
                self.new_calls.remove(call)

    def call(self, name, args=(), kwargs={}):
        """A host call that blocks its thread; args are (path, value) pairs."""
        return self.perform(self.new_call(name, args, kwargs))

    def perform(self, call):
        is_main = _thread.get_ident() == MAIN_THREAD
        if not is_main:
            call.event = _thread.allocate_lock()
            call.event.acquire()
        self.register(call)
        try:
            if is_main:
                self.wait_in_main(call)
            else:
                self.offer()
                call.event.acquire()
        finally:
            if not call.done:
                self.forget(call)
        return self.finish_call(call)

    def wait_in_main(self, call):
        self.start_reading()
        try:
            self.offer()
            while not call.done:
                self.check_interrupt()
                self.pump(True)
        finally:
            self.stop_reading()

    def finish_call(self, call):
        try:
            return call.result()
        except CellEnded:
            self.ended = True
            raise

    async def call_async(self, name, args=(), kwargs={}):
        import asyncio

        call = self.new_call(name, args, kwargs)
        call.loop = asyncio.get_running_loop()
        call.future = call.loop.create_future()
        self.register(call)
        try:
            await call.future
        finally:
            if not call.done:
                self.forget(call)
        return self.finish_call(call)

    # The life of a cell, as far as the word goes.

    def begin_cell(self, number):
        self.cell = number
        self.in_cell = True
        self.has_word = True
        self.ended = False
        self.stop_reading()

    def end_cell(self, error, notes, names):
        """Sends `finished`. Afterwards the main thread holds the stream."""
        self.output.drain()
        text, omitted = self.output.take()
        with self.lock:
            self.in_cell = False
            cancelled = self.abandon_calls() if self.unanswered or self.new_calls else ""
        payload = ('{"cell":%d,"output":%s,"omitted":%d,"error":%s,"notes":%s%s%s}' % (
            self.cell, quote(text), omitted, quote_members(error) if error else "null",
            quote_all(notes), names, cancelled)).encode()
        frame = self.channel.send_ahead(payload)
        self.start_reading()
        if not self.has_word:
            with self.lock:
                self.wake()
            while not self.has_word:
                self.pump(True)
        self.has_word = False
        self.interrupt = None
        self.channel.send_frame(FINISHED, *frame)

    def abandon_calls(self):
        """Ends the waits for calls that the cell leaves unanswered; `lock` is held."""
        abandoned = list(self.pending.values()) + self.new_calls
        self.pending, self.new_calls = {}, []
        cancelled, self.unanswered = sorted(self.unanswered), set()
        error = {"type": "ToolInterrupted", "message": "the cell ended", "reason": "cell_ended"}
        for call in abandoned:
            call.answer(None, error)
        return ',"cancelled":%s' % cancelled if cancelled else ""


class Monitor:
    """The thread that hears the host in mid-cell, empties the output's pipe and shows output.

    A cell that is soon over costs it nothing: it looks every few milliseconds, and listens to the host
    if the agent's code has been at work since the last look (`Session.turn` tells). After some looks at
    nothing it sleeps until the main thread wakes it for the next turn.
    """

    def __init__(self, session):
        self.session = session
        self.sleeping = False
        self.shown = None
        self.next_show = 0.0
        low = os.pipe()
        self.wake_read, self.wake_write = map(move_high, low)
        for fd in low:
            os.close(fd)

    def start(self):
        self.poll = select.poll()
        self.poll.register(self.wake_read, select.POLLIN)
        self.poll.register(self.session.output.pipe, select.POLLIN)
        _thread.start_new_thread(self.run, ())

    def wake(self):
        self.sleeping = False
        os.write(self.wake_write, b".")

    def run(self):
        try:
            self.watch()
        except BaseException as e:
            self.session.channel.fatal(describe_failure(e))

    def watch(self):
        session = self.session
        turn = 0
        quiet_ticks = 0
        while True:
            if turn != session.turn:
                turn = session.turn
                quiet_ticks = 0
                self.doze(TICK_MS)
            elif session.agent_runs:
                self.listen()
            else:
                quiet_ticks += 1
                self.doze(TICK_MS if quiet_ticks < QUIET_TICKS else None)
            if session.in_cell:
                self.look_after_cell()

    def look_after_cell(self):
        session = self.session
        if session.interrupt is not None:
            _signal.pthread_kill(MAIN_THREAD, SIGNAL)
        now = monotonic()
        if now >= self.next_show and self.shown != session.output.mark():
            self.next_show = now + OUTPUT_MS / 1000
            self.show()

    def listen(self):
        """Agent's code is at work, so this thread is the one that hears the host."""
        session = self.session
        stream = session.channel.rfd
        self.poll.register(stream, select.POLLIN)
        try:
            for fd, event in self.poll.poll(INTERRUPT_MS if session.interrupt else OUTPUT_MS):
                if fd == stream:
                    self.read_stream()
                else:
                    self.handle(fd, event)
        finally:
            self.poll.unregister(stream)

    def doze(self, timeout):
        if timeout is None:
            self.sleeping = True
            if self.session.in_cell:
                timeout = OUTPUT_MS
        if timeout == TICK_MS or not self.session.agent_runs:
            for fd, event in self.poll.poll(timeout):
                self.handle(fd, event)
        self.sleeping = False

    def handle(self, fd, event):
        if fd == self.wake_read:
            os.read(fd, 4096)
        elif event & select.POLLIN:
            self.session.output.drain()
        else:
            self.poll.unregister(fd)

    def read_stream(self):
        session = self.session
        if not session.reading.acquire(False):
            return
        session.reader = _thread.get_ident()
        try:
            session.pump(False)
        finally:
            session.reader = None
            session.reading.release()

    def show(self):
        session = self.session
        self.shown = session.output.mark()
        text, omitted = session.output.text(OUTPUT_FRAME_CHARS)
        payload = '"output":%s,"omitted":%d}' % (quote(text), omitted)
        with session.lock:
            if text and session.in_cell:
                payload = '{"cell":%d,%s' % (session.cell, payload)
                session.channel.send_frame(OUTPUT, payload.encode())


def install_signals(session):
    """The handlers raise in the agent's code only, found by walking up from where the signal struck."""

    def agent_is_at_work(frame):
        while frame is not None and frame.f_globals is not globals():
            frame = frame.f_back
        return frame is not None and frame.f_code in AGENT_BELOW

    def on_interrupt(number, frame):
        if session.interrupt is not None and session.in_cell and agent_is_at_work(frame):
            session.raise_interrupt()

    def on_sigint(number, frame):
        if session.forked or session.in_cell and agent_is_at_work(frame):
            raise KeyboardInterrupt

    _signal.signal(SIGNAL, on_interrupt)
    _signal.signal(_signal.SIGINT, on_sigint)


# ---- event loops ---------------------------------------------------------------------------------


def install_asyncio(session, asyncio):
    """Loops of this process make host calls when they have nothing else to do; asyncio.run nests."""
    import contextvars
    import functools
    import selectors
    import threading

    class HostSelector(selectors.PollSelector):
        """Waits for the host's stream too, if it is the main thread's."""

        @calls_agent
        def select(self, timeout=None):
            if timeout is not None and timeout <= 0 or session.forked:
                return super().select(timeout)
            if session.new_calls:
                events = super().select(0)
                if events:
                    return events
            if session.in_cell and _thread.get_ident() == MAIN_THREAD:
                return self.select_with_host(timeout)
            session.offer()
            return self.select_plainly(timeout)

        @calls_agent
        def select_plainly(self, timeout):
            return super().select(timeout)

        def select_with_host(self, timeout):
            session.start_reading()
            self._selector.register(session.channel.rfd, select.POLLIN)
            try:
                session.check_interrupt()
                session.offer()
                events = self.select_plainly(timeout)
                if not events:
                    session.pump(False)
                    session.check_interrupt()
                return events
            finally:
                self._selector.unregister(session.channel.rfd)
                session.stop_reading()

    loop_class = asyncio.selector_events.BaseSelectorEventLoop
    original_init = loop_class.__init__

    def init(self, selector=None):
        original_init(self, HostSelector() if selector is None else selector)
        self.set_exception_handler(show_loop_error)

    loop_class.__init__ = init
    original_run = asyncio.run

    @functools.wraps(original_run)
    @calls_agent
    def run(main, **options):
        if asyncio._get_running_loop() is None:
            try:
                return original_run(main, **options)
            finally:
                # asyncio.run leaves the thread without a loop, which get_event_loop() then misses.
                if _thread.get_ident() == MAIN_THREAD and session.in_cell:
                    session.get_loop()
        outcome = []
        context = contextvars.copy_context()

        @calls_agent
        def target():
            try:
                outcome.append((context.run(original_run, main, **options), None))
            except BaseException as e:
                outcome.append((None, e))

        thread = threading.Thread(target=target, name="asyncio.run", daemon=True)
        thread.start()
        thread.join()
        value, error = outcome[0]
        if error is not None:
            raise error
        return value

    asyncio.run = asyncio.runners.run = run


# ---- what the agent's code can call --------------------------------------------------------------


def visible(function):
    """A function of the agent's: as if it were defined in `__main__`, and interrupts may strike in it."""
    function.__module__ = "__main__"
    function.__qualname__ = function.__name__
    return calls_agent(function)


class Api:
    """The functions that ask the host, and the coroutines of theirs that nobody has awaited yet."""

    def __init__(self, session):
        self.session = session
        self.unstarted = {}
        self.last_token = 0
        self.stop = None
        self.functions = (self.done, self.launch_subagents, self.llm_query, self.llm_query_batched,
                          self.budget)
        for function in self.functions[1:4]:
            self.mark_awaitable(function)

    @visible
    def done(self, answer):
        """Gives the answer of this agent and ends the cell. A schema that the answer fails is an
        exception here."""
        session = self.session
        text = str(answer)
        try:
            call = session.new_call("done", (("answer", answer),), {"text": text})
        except (TypeError, ValueError):
            call = session.new_call("done", (), {"text": text})
        session.perform(call)
        session.ended = True
        self.stop_the_rest()
        raise CellEnded("the answer was accepted")

    @visible
    def launch_subagents(self, specs):
        """Starts sub-agents, one for each spec (a dict with "query", ...), and returns their answers
        in that order; a failed one is a Failure in its place. To be awaited."""
        specs = as_list(specs, "launch_subagents(specs) takes a list of specs, not %s; write "
                        "launch_subagents([...])")
        return self.coroutine("launch_subagents", (("specs", specs),), {})

    @visible
    def llm_query(self, prompt, model=None, output_schema=None):
        """Asks a model, without an agent; returns its reply. To be awaited."""
        return self.coroutine("llm_query", (("prompt", prompt),),
                              query_options(model, output_schema))

    @visible
    def llm_query_batched(self, prompts, model=None, output_schema=None):
        """Asks a model each of the prompts at once; returns the replies in that order; a failed one
        is a Failure in its place. To be awaited."""
        prompts = as_list(prompts, "llm_query_batched(prompts) takes a list of prompts, not %s")
        return self.coroutine("llm_query_batched", (("prompts", prompts),),
                              query_options(model, output_schema))

    @visible
    def budget(self):
        """What is left of the run's limits, as a dict."""
        return self.session.call("budget")

    def tool(self, spec):
        """A proxied tool, with the signature that its schema describes."""
        name = spec["name"]
        make = self.coroutine if spec.get("async") else self.session.call

        def call(*args, **kwargs):
            import inspect

            signature = call.__signature__
            try:
                values = signature.bind(*args, **kwargs).arguments
            except TypeError as e:
                raise TypeError("%s() %s" % (name, e)) from None
            if "more" in values and signature.parameters["more"].kind == inspect.Parameter.VAR_KEYWORD:
                values.update(values.pop("more"))
            return make(name, (), values)

        def sign(inspect):
            call.__signature__ = signature_of(spec.get("parameters") or {})

        call.__name__ = name
        call.__doc__ = describe_tool(spec)
        self.session.imports.when("inspect", sign)
        if spec.get("async"):
            self.mark_awaitable(call)
        return visible(call)

    # Coroutines.

    def coroutine(self, name, args, kwargs):
        """A coroutine of a host call, remembered until it starts."""
        self.last_token += 1
        coroutine = self.run(self.last_token, name, args, kwargs)
        coroutine.__name__ = coroutine.__qualname__ = name
        self.unstarted[self.last_token] = coroutine
        return coroutine

    async def run(self, token, name, args, kwargs):
        self.unstarted.pop(token, None)
        return await self.session.call_async(name, args, kwargs)

    def take_unstarted(self):
        """Those that were never awaited; closed ones are none."""
        waiting, self.unstarted = list(self.unstarted.values()), {}
        return [c for c in waiting if c.cr_frame is not None and not c.cr_running]

    def mark_awaitable(self, function):
        """For `asyncio.iscoroutinefunction`; it is none, but returns coroutines."""
        def mark(asyncio):
            import inspect

            if hasattr(inspect, "markcoroutinefunction"):
                inspect.markcoroutinefunction(function)
            else:
                plain = getattr(function, "__func__", function)
                plain._is_coroutine = asyncio.coroutines._is_coroutine

        self.session.imports.when("asyncio", mark)

    def stop_the_rest(self):
        """The cell may wait for something else than the task or thread that called done()."""
        if _thread.get_ident() != MAIN_THREAD:
            self.session.interrupt = {"message": "the answer was accepted"}
            self.session.monitor.wake()
            return
        loop = asyncio_running_loop()
        if loop is not None:
            self.stop = loop.call_later(0.05, stop_loop)


def stop_loop():
    raise StopLoop


def as_list(items, refusal):
    if not isinstance(items, (dict, str, bytes)):
        try:
            return list(items)
        except TypeError:
            pass
    raise TypeError(refusal % describe_kind(items))


def query_options(model, output_schema):
    options = {}
    if model is not None:
        options["model"] = model
    if output_schema is not None:
        as_schema = getattr(output_schema, "model_json_schema", None)
        options["output_schema"] = as_schema() if callable(as_schema) else output_schema
    return options


def signature_of(schema):
    """Required parameters come by position until an optional one came, then by keyword only."""
    from inspect import Parameter, Signature

    properties = schema.get("properties") or {}
    required = schema.get("required") or ()
    kind = Parameter.POSITIONAL_OR_KEYWORD
    optional_seen = False
    parameters = []
    for name, about in properties.items():
        if not is_name(name):
            continue
        default = Parameter.empty
        if name not in required:
            optional_seen = True
            default = about.get("default") if isinstance(about, dict) else None
        elif optional_seen:
            kind = Parameter.KEYWORD_ONLY
        parameters.append(Parameter(name, kind, default=default))
    if len(parameters) < max(len(properties), 1) or schema.get("additionalProperties"):
        parameters.append(Parameter("more", Parameter.VAR_KEYWORD))
    return Signature(parameters)


def is_name(text):
    from keyword import iskeyword

    return text.isidentifier() and not iskeyword(text)


def describe_tool(spec):
    text = spec.get("description") or ""
    properties = (spec.get("parameters") or {}).get("properties") or {}
    if properties:
        text += "\n"
    for name, about in properties.items():
        about = about if isinstance(about, dict) else {}
        text += "\n    %s: %s" % (name, about.get("description") or about.get("type") or "")
    return text


# ---- inputs, and the names that keep their values ------------------------------------------------


class Inputs(dict):
    """`INPUTS`: the inputs of this agent by name; cannot be changed."""

    def refuse(self, *args, **kwargs):
        raise TypeError("INPUTS cannot be changed; keep your own values under other names")

    __setitem__ = __delitem__ = __ior__ = update = setdefault = pop = popitem = clear = refuse

    def __missing__(self, name):
        raise KeyError("there is no input %r; the inputs are: %s"
                       % (name, ", ".join(self) or "none"))

    def __reduce__(self):
        return (dict, (dict(self),))

    def copy(self):
        return dict(self)


class DirectoryInput(Mapping):
    """A directory given as an input: file names to contents, each read when first asked for."""

    def __init__(self, session, name, files):
        self.session = session
        self.name = name
        self.sizes = {file: size for file, size in files}
        self.kept = {}

    @calls_agent
    def __getitem__(self, file):
        if file not in self.kept:
            if file not in self.sizes:
                raise KeyError(file)
            self.kept[file] = self.session.call("read_input", (("name", self.name), ("file", file)))
        return self.kept[file]

    @calls_agent
    def __contains__(self, file):
        return file in self.sizes

    def __iter__(self):
        return iter(self.sizes)

    def __len__(self):
        return len(self.sizes)

    def __repr__(self):
        return "<directory input %r: %d files, %s bytes>" % (
            self.name, len(self), format(sum(self.sizes.values()), ","))


def describe_value(value):
    if isinstance(value, (str, bytes)):
        return "%s, %s %s" % (type(value).__name__, format(len(value), ","),
                              "characters" if isinstance(value, str) else "bytes")
    return type(value).__name__


KEEP = "__rlmflow_keep__"
MISSING = object()


class Names:
    """The names of inputs and of the API in the agent's namespace, which keep their values."""

    def __init__(self, namespace):
        self.namespace = namespace
        self.kept = {}
        self.inputs = set()

    def bind(self, name, value, is_input=False):
        self.namespace[name] = value
        self.kept[name] = value
        self.kept_items = tuple(self.kept.items())
        if is_input:
            self.inputs.add(name)

    def keep(self, *names):
        """Stands after statements that store one of these names."""
        for name in names:
            if self.namespace.get(name, MISSING) is not self.kept[name]:
                raise InputNameError(self.put_back(name))

    def restore(self):
        """Puts back what slipped through (globals(), exec, import *); returns notes."""
        get = self.namespace.get
        for name, value in self.kept_items:
            if get(name) is not value:
                return [self.put_back(n) for n, v in self.kept_items if get(n) is not v]
        return ()

    def put_back(self, name):
        value = self.namespace[name] = self.kept[name]
        if name not in self.inputs:
            return "`%s` belongs to the session and keeps its value; use another name" % name
        return ("`%s` is an input (%s) and keeps its value: the real data is in it already; delete "
                "this line, or use another name for what you make of it, such as `my_%s`" % (
                    name, describe_value(value), name))

    def appear_in(self, source):
        return any(name in source for name in self.kept)

    def guard(self, tree):
        """Puts a check behind every statement that stores a kept name."""
        kept = self.kept.keys()
        tree.body = guard_block(tree.body, kept, kept)


FUNCTIONS = (_ast.FunctionDef, _ast.AsyncFunctionDef)
SCOPES = FUNCTIONS + (_ast.ClassDef, _ast.Lambda)
COMPREHENSIONS = (_ast.ListComp, _ast.SetComp, _ast.DictComp, _ast.GeneratorExp)


def guard_block(statements, here, everywhere):
    """`here`: kept names that a store in this block would change; `everywhere`: all kept names."""
    result = []
    for statement in statements:
        stored = stores_of(statement) & here
        if isinstance(statement, FUNCTIONS):
            here_inside = globals_of(statement) & everywhere
            statement.body = guard_block(statement.body, here_inside, everywhere)
        elif isinstance(statement, _ast.ClassDef):
            statement.body = guard_block(statement.body, frozenset(), everywhere)
        else:
            guard_blocks_inside(statement, stored, here, everywhere)
        result.append(statement)
        if stored:
            result.append(keep_call(statement, stored))
    return result


def guard_blocks_inside(statement, stored, here, everywhere):
    """What the head of a compound statement stores is checked first in each of its blocks."""
    for part in [statement] + getattr(statement, "handlers", []) + getattr(statement, "cases", []):
        place = getattr(part, "pattern", part)
        for field in ("body", "orelse", "finalbody"):
            block = getattr(part, field, None)
            if isinstance(block, list) and block:
                first = [keep_call(place, stored)] if stored and field == "body" else []
                setattr(part, field, first + guard_block(block, here, everywhere))


def keep_call(where, names):
    place = {"lineno": where.lineno, "col_offset": where.col_offset,
             "end_lineno": where.lineno, "end_col_offset": where.col_offset + 1}
    call = _ast.Call(
        func=_ast.Name(id=KEEP, ctx=_ast.Load(), **place), keywords=[],
        args=[_ast.Constant(value=name, kind=None, **place) for name in sorted(names)], **place)
    return _ast.Expr(value=call, **place)


def children(node):
    for field in node._fields:
        value = getattr(node, field, None)
        for child in value if isinstance(value, list) else (value,):
            if isinstance(child, _ast.AST):
                yield child


def globals_of(function):
    names = set()
    todo = list(function.body)
    while todo:
        node = todo.pop()
        if isinstance(node, _ast.Global):
            names.update(node.names)
        elif not isinstance(node, SCOPES):
            todo.extend(children(node))
    return names


def stores_of(node):
    """Names that a statement itself stores, not those of the statements inside of it."""
    names = set()
    todo = [(node, False)]
    while todo:
        node, in_comprehension = todo.pop()
        if isinstance(node, SCOPES):
            names.add(getattr(node, "name", None))
            continue
        kind = type(node).__name__
        if kind == "Name":
            if not in_comprehension and not isinstance(node.ctx, _ast.Load):
                names.add(node.id)
        elif kind == "NamedExpr":
            names.add(node.target.id)
        elif kind == "alias":
            names.add(node.asname or node.name.split(".")[0])
        elif kind in ("MatchAs", "MatchStar", "ExceptHandler"):
            names.add(node.name)
        elif kind == "MatchMapping":
            names.add(node.rest)
        in_comprehension = in_comprehension or isinstance(node, COMPREHENSIONS)
        todo += [(child, in_comprehension) for child in children(node)
                 if not isinstance(child, _ast.stmt)]
    return names


# ---- cells ---------------------------------------------------------------------------------------

AWAITS = _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
IS_COROUTINE = 0x80


def future_flags():
    import __future__

    flags = 0
    for name in __future__.all_feature_names:
        flags |= getattr(__future__, name).compiler_flag
    return flags & ~0x1f


@calls_agent
def execute(code, namespace):
    return eval(code, namespace)


@calls_agent
async def execute_in_loop(body, last, namespace):
    if body is not None:
        value = eval(body, namespace)
        if body.co_flags & IS_COROUTINE:
            await value
    if last is None:
        return None
    value = eval(last, namespace)
    if last.co_flags & IS_COROUTINE:
        value = await value
    if type(value) is Coroutine:
        value = await value
    return value


@calls_agent
def run_in_loop(loop, coroutine):
    return loop.run_until_complete(coroutine)


@calls_agent
def show(value):
    """What the REPL echoes; huge texts are cut before they are spelled out."""
    if type(value) in (str, bytes, bytearray) and len(value) > 2 * ECHO_CHARS:
        head, tail = value[:ECHO_CHARS // 2], value[-ECHO_CHARS // 2:]
        return "%r%s%r" % (head, gap(" ", len(value) - len(head) - len(tail), "left out"), tail)
    return cut_middle(repr(value), 2 * ECHO_CHARS, " ")


class Cells:
    """Compiles and runs the cells of one namespace."""

    def __init__(self, session, api):
        self.session = session
        self.api = api
        self.module = type(sys)("__main__")
        self.namespace = self.module.__dict__
        self.namespace["__builtins__"] = builtins
        sys.modules["__main__"] = self.module
        self.names = Names(self.namespace)
        setattr(builtins, KEEP, self.names.keep)
        self.loop = None
        session.get_loop = self.get_loop
        self.futures = 0
        self.never_awaited = []
        self.sources = {}
        self.bound = set()
        self.linecache = None
        imports = session.imports
        imports.when("linecache", self.cache_all_lines)
        imports.when("warnings", self.note_all_unawaited)

    # Lines for tracebacks: kept as they came until somebody wants to see one.

    def cache_all_lines(self, linecache):
        self.linecache = linecache
        for filename, source in self.sources.items():
            self.cache_lines(filename, source)

    def cache_lines(self, filename, source):
        self.linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)

    # Compiling.

    def compile(self, filename, source):
        """(body, last): code to execute, and the last expression, whose value is shown."""
        flags = AWAITS | self.futures
        is_line = source.find("\n") in (-1, len(source) - 1)
        if is_line and ":=" not in source:
            try:
                return None, compile(source, filename, "eval", flags, True)
            except SyntaxError:
                pass
        guarded = self.names.appear_in(source)
        if is_line and not guarded and ";" not in source:
            return self.compiled(source, compile(source, filename, "exec", flags, True)), None
        tree = compile(source, filename, "exec", flags | _ast.PyCF_ONLY_AST, True)
        last = None
        if tree.body and isinstance(tree.body[-1], _ast.Expr):
            if not guarded or self.names.kept.keys().isdisjoint(stores_of(tree.body[-1])):
                last = compile(_ast.Expression(tree.body.pop().value), filename, "eval", flags, True)
        if guarded:
            self.names.guard(tree)
        if not tree.body:
            return None, last
        return self.compiled(source, compile(tree, filename, "exec", flags, True)), last

    def compiled(self, source, code):
        """`from __future__ import` holds for the cells that follow too."""
        if "__future__" in source:
            self.futures |= code.co_flags & future_flags()
        return code

    # Running.

    def run(self, number, source):
        session = self.session
        filename = "<cell %d>" % number
        self.sources[filename] = source
        if self.linecache is not None:
            self.cache_lines(filename, source)
        error = None
        try:
            session.check_interrupt()
            body, last = self.compile(filename, source)
            self.run_code(body, last)
        except (CellEnded, StopLoop):
            session.ended = True
        except BaseException as e:
            if not (session.ended and isinstance(e, CellInterrupted)):
                error = self.describe_error(e)
        if session.forked:
            os._exit(1 if error else 0)
        notes = []
        if self.api.unstarted or self.api.stop is not None or self.loop is not None:
            self.tidy_loop(error, notes)
        if self.never_awaited:
            self.add_unawaited_notes(notes)
        notes += self.names.restore()
        if sys.stdout is not self.stdout or sys.stderr is not self.stderr:
            sys.stdout, sys.stderr = self.stdout, self.stderr
            notes.append("sys.stdout or sys.stderr was left replaced; the session's own are back")
        session.end_cell(error, notes, self.changed_names())

    def changed_names(self):
        """The members of `finished` that say which names the cell has bound anew, and which it has not
        left bound."""
        before, self.bound = self.bound, set(self.namespace)
        if before == self.bound:
            return ""
        return ',"bound":%s,"unbound":%s' % tuple(
            quote_all(sorted(name for name in names if isinstance(name, str))[:MOST_NAMES])
            for names in (self.bound - before, before - self.bound))

    def run_code(self, body, last):
        flags = body.co_flags if body is not None else 0
        flags |= last.co_flags if last is not None else 0
        if flags & IS_COROUTINE:
            value = run_in_loop(self.get_loop(), execute_in_loop(body, last, self.namespace))
        else:
            if body is not None:
                execute(body, self.namespace)
            if last is None:
                return
            value = execute(last, self.namespace)
            if type(value) is Coroutine:
                value = run_in_loop(self.get_loop(), value)
        if value is not None:
            self.echo(value)

    def echo(self, value):
        try:
            text = show(value)
        except Exception as e:
            text = "<%s object; its repr() raised %s>" % (type(value).__name__, type(e).__name__)
            self.session.output.add(text + "\n")
            raise
        self.session.output.drain()
        self.session.output.add(text + "\n")

    def get_loop(self):
        import asyncio

        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        return self.loop

    # After the code.

    def tidy_loop(self, error, notes):
        """Awaits our coroutines that were forgotten, cancels the tasks that still run."""
        try:
            if self.api.stop is not None:
                self.api.stop.cancel()
                self.api.stop = None
            self.cancel_tasks(notes)
            for coroutine in self.api.take_unstarted():
                if error is None and not self.session.ended and not self.session.interrupt:
                    self.await_forgotten(coroutine, notes)
                else:
                    coroutine.close()
                    notes.append("%s(...) was not awaited and did nothing" % coroutine.__name__)
            self.cancel_tasks(notes)
        except CellEnded:
            pass
        except BaseException as e:
            notes.append("ending what was left of the cell: %s" % describe_exception(e))

    def await_forgotten(self, coroutine, notes):
        name = coroutine.__name__
        held_by = [k for k, v in self.namespace.items() if v is coroutine]
        try:
            value = run_in_loop(self.get_loop(), coroutine)
        except Exception as e:
            notes.append("%s(...) was not awaited; it ran at the end of the cell and failed: %s"
                         % (name, describe_exception(e)))
            return
        for variable in held_by:
            self.namespace[variable] = value
        where = "its result is now in `%s`" % held_by[0] if held_by else "its result is lost"
        notes.append("%s(...) was not awaited; it ran at the end of the cell and %s; write "
                     "`... = await %s(...)`" % (name, where, name))

    def cancel_tasks(self, notes):
        if self.loop is None or self.loop.is_closed():
            return
        import asyncio

        tasks = [t for t in asyncio.all_tasks(self.loop) if not t.done()]
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        names = [getattr(t.get_coro(), "__name__", "?") for t in tasks]
        own = [n for n in names if n != "execute_in_loop"]
        if own:
            notes.append("%s still running at the end of the cell and cancelled: %s" % (
                "1 task was" if len(own) == 1 else "%d tasks were" % len(own),
                ", ".join(sorted(own)[:20])))
        done, stubborn = run_in_loop(self.loop, asyncio.wait(tasks, timeout=SETTLE_SECONDS))
        for task in done:
            if not task.cancelled():
                task.exception()
        if stubborn:
            notes.append("%d tasks did not end when they were cancelled" % len(stubborn))

    def note_all_unawaited(self, warnings):
        warnings._warn_unawaited_coroutine = self.note_unawaited

    def note_unawaited(self, coroutine):
        self.never_awaited.append(coroutine.__qualname__)

    def add_unawaited_notes(self, notes):
        names, self.never_awaited = self.never_awaited, []
        own = [n for n in names if n not in ("execute_in_loop", "Cells.cancel_tasks")]
        if own:
            notes.append("never awaited, so never run: %s" % ", ".join(sorted(set(own))[:20]))

    # Errors.

    def describe_error(self, error):
        """The ERROR of an exception that ended the cell."""
        message = describe_message(error)
        name = type(error).__name__
        if isinstance(error, SyntaxError) and error.text is None and error.lineno:
            import linecache

            error.text = linecache.getline(error.filename or "", error.lineno) or None
        if isinstance(error, SystemExit):
            message = "SystemExit%s: the session goes on; call done(answer) to end the agent" % (
                "" if error.code is None else ": %s" % message)
        text = render(error)
        if isinstance(error, TypeError) and "coroutine" in message and self.api.unstarted:
            called = next(iter(self.api.unstarted.values())).__name__
            hint = "%s(...) must be awaited: write `await %s(...)`" % (called, called)
            message = "%s; %s" % (message, hint)
            text += hint + "\n"
        return {"type": name, "message": message, "traceback": text}


def show_thread_error(args):
    """`threading.excepthook`: as threading's own, but with the agent's lines only."""
    if args.exc_value is not None and not isinstance(args.exc_value, (SystemExit, CellEnded)):
        sys.stderr.write("Exception in thread %s:\n%s" % (
            args.thread.name if args.thread is not None else "?", render(args.exc_value)))


def show_thread_errors(threading):
    threading.excepthook = show_thread_error


def show_loop_error(loop, context):
    """The exception handler of event loops: what asyncio would log, with the agent's lines only."""
    error = context.get("exception")
    if not isinstance(error, (CellEnded, StopLoop)):
        sys.stderr.write("%s%s" % (context.get("message", "error in the event loop"),
                                   ":\n" + render(error) if error is not None else "\n"))


def describe_message(error):
    try:
        message = str(error)
    except BaseException:
        message = "<its str() failed>"
    if isinstance(error, KeyError) and len(error.args) == 1 and isinstance(error.args[0], str):
        message = repr(error.args[0])
    return cut_middle(message, TRACEBACK_CHARS)


def describe_exception(error):
    message = describe_message(error)
    return "%s: %s" % (type(error).__name__, message) if message else type(error).__name__


def render(error):
    """The traceback as the agent should see it: its own lines, and no frame of the worker."""
    import traceback

    try:
        report = traceback.TracebackException(type(error), error, error.__traceback__)
        seen = set()
        todo = [report]
        while todo:
            part = todo.pop()
            if part is None or id(part) in seen:
                continue
            seen.add(id(part))
            kept = [f for f in part.stack if f.filename != WORKER_FILE]
            first = next((i for i, f in enumerate(kept) if f.filename.startswith("<cell ")), 0)
            part.stack[:] = kept[first:]
            todo += [part.__cause__, part.__context__]
            todo += getattr(part, "exceptions", None) or ()
        lines = list(report.format())
        if not report.stack and lines and lines[0].startswith("Traceback"):
            lines = list(report.format_exception_only())
        return cut_middle("".join(lines), TRACEBACK_CHARS)
    except Exception:
        return describe_exception(error) + "\n"


# ---- file tools ----------------------------------------------------------------------------------
#
# Bytes are bytes: UTF-8 with surrogateescape, and no translation of newlines.


def write_text(path, content, mode):
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else bytes(content)
    parent = os.path.dirname(path)
    if parent:
        os.makedirs(parent, exist_ok=True)
    with open(path, mode) as file:
        file.write(data)
    return len(data)


def split_lines(text):
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def read_file(path):
    """The whole text of a file."""
    with open(path, "rb") as file:
        return file.read().decode("utf-8", "surrogateescape")


def write_file(path, content):
    """Writes a file anew, with the directories above it."""
    return "Wrote %d bytes to %s" % (write_text(path, content, "wb"), path)


def append_file(path, content):
    """Adds to the end of a file, which is made if it is missing, with the directories above it."""
    return "Appended %d bytes to %s" % (write_text(path, content, "ab"), path)


def edit_file(path, *edits, replace_all=False):
    """Applies (old, new) pairs in order; writes nothing unless every `old` is found, once (or any number
    of times with replace_all=True)."""
    text = read_file(path)
    for edit in edits:
        if isinstance(edit, str) or len(edit) != 2:
            raise TypeError("edit_file(path, *edits) takes (old, new) pairs")
        old, new = edit
        found = text.count(old) if old else 0
        if not found:
            raise ValueError("edit_file: anchor not found in %s: %r" % (path, old[:200]))
        if found > 1 and not replace_all:
            raise ValueError("edit_file: anchor appears %dx in %s: %r; make it longer or pass "
                             "replace_all=True" % (found, path, old[:200]))
        text = text.replace(old, new)
    write_text(path, text, "wb")
    return "Applied %d edits to %s" % (len(edits), path)


def ls(path="."):
    """The sorted paths in a directory; of a file, itself."""
    path = os.fspath(path)
    if not os.path.isdir(path):
        os.stat(path)
        return [path]
    return sorted(os.path.normpath(os.path.join(path, name)) for name in os.listdir(path))


def read_lines(path, start, end):
    """Lines start to end (0-based, end exclusive), joined by newlines."""
    return "\n".join(split_lines(read_file(path))[start:end])


def line_count(path):
    """The number of lines of a file."""
    return len(split_lines(read_file(path)))


def grep(pattern, path=".", *, max_results=50):
    """Lines that a regular expression matches, as "file:line: text", in sorted order of the files."""
    import re

    expression = re.compile(pattern)
    results = []
    for name in walk_files(os.fspath(path)):
        try:
            with open(name, "rb") as file:
                text = file.read().decode("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        for number, line in enumerate(split_lines(text), 1):
            if len(results) >= max_results:
                return "\n".join(results)
            if expression.search(line):
                results.append("%s:%d: %s" % (name, number, line.rstrip("\r")))
    return "\n".join(results)


def walk_files(path):
    if not os.path.isdir(path):
        os.stat(path)
        yield path
        return
    for above, directories, files in os.walk(path):
        directories.sort()
        for name in sorted(files):
            full = os.path.normpath(os.path.join(above, name))
            if os.path.isfile(full):
                yield full


FILE_TOOLS = (read_file, write_file, append_file, edit_file, ls, read_lines, line_count, grep)
for _tool in FILE_TOOLS:
    visible(_tool)


# ---- the life of a worker ------------------------------------------------------------------------


# A worker that is told nothing for so long has been started ahead.
SPARE_AFTER_S = 0.05


def preload():
    """Imports what sessions may need; a warm interpreter does it once before it forks."""
    import asyncio, contextvars, ctypes, inspect, random, selectors, threading, traceback


def open_session(session, message):
    """Makes the namespace of the agent that `open` describes."""
    session.output.set_limit(message.get("limits", {}).get("output_bytes", 1 << 20))
    session.imports.when("random", lambda random: random.seed(message.get("seed", "")))
    api = Api(session)
    cells = Cells(session, api)
    cells.stdout, cells.stderr = sys.stdout, sys.stderr
    namespace = cells.namespace
    for kind in AGENT_CLASSES:
        namespace[kind.__name__] = kind
    if message.get("file_tools"):
        for tool in FILE_TOOLS:
            namespace[tool.__name__] = tool
    namespace["ENV"] = dict(message.get("env") or {})
    for spec in message.get("tools") or ():
        namespace[spec["name"]] = api.tool(spec)
    for function in api.functions:
        cells.names.bind(function.__name__, function)
    bind_inputs(cells.names, message.get("inputs") or {}, set(namespace))
    cells.bound = set(namespace)
    session.last_id = message.get("last_call", 0)
    return cells


def bind_inputs(names, inputs, taken):
    names.bind("INPUTS", Inputs(inputs))
    for name, value in inputs.items():
        if is_name(name) and not (hasattr(builtins, name) or name in taken or name == "INPUTS"):
            names.bind(name, value, is_input=True)


def ready_message(session):
    why = session.values.why
    mapped = '"mapped":true' if why is None else '"mapped":false,"why":%s' % quote(why)
    return ('{"python":"%d.%d.%d","implementation":%s,"executable":%s,"pid":%d,%s}' % (
        *sys.version_info[:3], quote(sys.implementation.name), quote(sys.executable or ""),
        os.getpid(), mapped)).encode()


def forget_host_in_child(session):
    """A process that the agent forks keeps its namespace, and loses the host."""
    session.forked = True
    session.in_cell = False
    for stream in (sys.__stdout__, sys.__stderr__):
        stream.write = stream.write_plainly
    for fd in {session.channel.rfd, session.channel.wfd, session.output.pipe,
               session.monitor.wake_read, session.monitor.wake_write}:
        try:
            os.close(fd)
        except OSError:
            pass


def describe_failure(error):
    """What went wrong in the worker itself."""
    import traceback

    return "".join(traceback.format_exception(type(error), error, error.__traceback__))[-4000:]


def serve(rfd, wfd):
    """Runs the session that the host opens over these descriptors; does not return."""
    global MAIN_THREAD
    MAIN_THREAD = _thread.get_ident()
    session = Session(rfd, wfd)
    try:
        run_session(session)
    except BaseException as e:
        session.channel.fatal(describe_failure(e))


def run_session(session):
    session.output.open_pipe()
    sys.stdin = sys.__stdin__ = NoInput(open(0, "rb", closefd=False), "utf-8", "surrogateescape")
    sys.stdout = sys.__stdout__ = OutputStream(session, 1, "<stdout>")
    sys.stderr = sys.__stderr__ = OutputStream(session, 2, "<stderr>")
    sys.argv = [""]
    sys.setswitchinterval(0.001)
    _warnings.filters.insert(0, ("ignore", ForkWarning, DeprecationWarning, None, 0))
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)
    session.reading.acquire()
    session.reader = MAIN_THREAD
    if not select.select([session.channel.rfd], [], [], SPARE_AFTER_S)[0]:
        preload()  # it was started ahead of its session: there is time now
    while session.opened is None:
        session.pump(True)
    session.imports.when("asyncio", lambda asyncio: install_asyncio(session, asyncio))
    session.imports.when("threading", show_thread_errors)
    install_signals(session)
    cells = open_session(session, session.opened)
    session.monitor.start()
    os.register_at_fork(after_in_child=lambda: forget_host_in_child(session))
    session.channel.send_frame(READY, ready_message(session))
    while True:
        while session.starts:
            start = session.starts.popleft()
            if "recovered" in start:
                cells.namespace["RECOVERED"] = start["recovered"]
            session.begin_cell(start["cell"])
            cells.run(start["cell"], start["code"])
            del start
        session.pump(True)


if "protocol" in globals():
    serve(*globals()["protocol"])
