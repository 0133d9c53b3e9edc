"""The frames of docs/protocol.md over the host's stream."""
import _socket
import _thread
import errno
import os
import select
from _collections import deque
from _json import encode_basestring_ascii as quote
from _struct import Struct, iter_unpack

from .json_text import read_json
from .reports import TOO_MANY_FILES
from .descriptors import write_all

# Kinds and flags of frames.
OPEN, READY, START, RESUME, SUSPENDED, FINISHED, WAKE, YIELD, INTERRUPT, CLOSE = range(1, 11)
TEXT, BYTES, BODY, CREDIT, BLOB, SYNC, OUTPUT, FATAL = range(11, 19)
END, DESCRIPTOR, HAS_BODY = 1, 2, 4
HEADER = Struct("<IBBHQ")
CREDIT_PAYLOAD = Struct("<I")
MAX_PAYLOAD = 1 << 20
MAX_CHUNK = 256 * 1024
MAX_CONTROL = 64 * 1024
FIRST_CREDIT = 1 << 20
CLOSED_BY_CELL = 121  # the exit status that tells the host so
CLOSE_ON_EXEC = getattr(_socket, "MSG_CMSG_CLOEXEC", 0)  # of the descriptors that come


class Channel:
    """Frames over the host's stream. Many may send; one reads at a time (Session.reading).

    `leave(status)` ends the session at once and does not return."""

    def __init__(self, rfd, wfd, leave):
        self.rfd = rfd
        self.wfd = wfd
        self.leave = leave
        for fd in {rfd, wfd}:
            os.set_blocking(fd, True)
        try:
            self.socket = _socket.socket(fileno=self.rfd)
        except OSError:
            self.socket = None
        self.send_lock = _thread.allocate_lock()
        self.sender = None
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
            self.sender = _thread.get_ident()
            self.sent += 1
            data = HEADER.pack(len(payload), kind, flags, stream, self.sent) + payload
            try:
                sent = os.write(self.wfd, data)
                if sent < len(data):
                    write_all(self.wfd, memoryview(data)[sent:])
            except OSError as e:
                self.leave(CLOSED_BY_CELL if e.errno == errno.EBADF else 0)
            self.sender = None

    def can_send(self):
        """No, in a signal's handler that struck while its thread was sending."""
        if self.sender == _thread.get_ident() or not self.send_lock.acquire(True, 0.1):
            return False
        self.send_lock.release()
        return True

    def send(self, kind, payload):
        self.send_frame(kind, *self.send_ahead(payload))

    def send_ahead(self, payload):
        """(payload, flags, stream) of a control frame; a large one goes ahead as a body."""
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
            self.leave()
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
            flags = CLOSE_ON_EXEC if block else CLOSE_ON_EXEC | _socket.MSG_DONTWAIT
            data, ancillary, flags, _ = self.socket.recvmsg(65536, 256, flags)
        except BlockingIOError:
            return None
        except ConnectionError:
            self.leave()
        if ancillary:
            for level, kind, content in ancillary:
                if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                    for fd, in iter_unpack("i", content[:len(content) // 4 * 4]):
                        self.descriptors.append(fd)
        if flags & _socket.MSG_CTRUNC:
            self.fatal(TOO_MANY_FILES % os.sysconf("SC_OPEN_MAX"))
        return data

    def check(self, kind, length, sequence):
        self.received += 1
        if sequence != self.received or length > MAX_PAYLOAD:
            self.fatal("frame %d of kind %d came where frame %d was due"
                       % (sequence, kind, self.received))

    def fatal(self, message):
        self.send_frame(FATAL, ('{"message":%s}' % quote(message)).encode()[:MAX_CONTROL])
        self.leave(1)

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
