"""HTTP/1.1 on an asyncio protocol: keep-alive, chunked bodies both ways, resets on purpose.

One `Connection` per socket, one `Request` and one `Response` at a time on it; a pipelined request
waits for the answer before it. A handler is `async def handler(request, response)`. When the client
leaves, the handler's task is cancelled, so a handler learns of it as `CancelledError`.
"""

import array
import asyncio
import fcntl
import re
import socket
import struct
import termios

MAX_HEAD_BYTES = 64 << 10
MAX_BODY_BYTES = 256 << 20

REASONS = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
    405: "Method Not Allowed", 408: "Request Timeout", 413: "Content Too Large",
    415: "Unsupported Media Type", 429: "Too Many Requests", 431: "Request Header Fields Too Large",
    500: "Internal Server Error", 502: "Bad Gateway", 503: "Service Unavailable",
    504: "Gateway Timeout", 529: "Overloaded",
}

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")


class BadRequest(Exception):
    """Bytes that are not an HTTP request; `status` is what to answer."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


class Request:
    """A request with its whole body. Header names are lower case; repeated ones are joined."""

    __slots__ = ("method", "path", "query", "headers", "body", "keep_alive", "connection_id")

    def __init__(self, method, target, headers, keep_alive, connection_id):
        self.method = method
        self.path, _, self.query = target.partition("?")
        self.headers = headers
        self.keep_alive = keep_alive
        self.connection_id = connection_id
        self.body = b""


class Response:
    """The answer to one request. Use `send`, or `start`, `write`..., `end`; or break it."""

    __slots__ = ("_connection", "keep_alive", "started", "ended", "framing", "bytes_sent")

    def __init__(self, connection, keep_alive):
        self._connection = connection
        self.keep_alive = keep_alive
        self.started = False
        self.ended = False
        self.framing = "chunked"
        self.bytes_sent = 0

    def _head(self, status, headers):
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if not self.keep_alive:
            lines.append("Connection: close")
        self.started = True
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def _write(self, data):
        self.bytes_sent += len(data)
        self._connection.transport.write(data)

    def send(self, status, headers, body):
        """Sends a whole answer with a Content-Length."""
        headers = {**headers, "Content-Length": str(len(body))}
        self._write(self._head(status, headers) + body)
        self.ended = True

    def start(self, status, headers, framing="chunked"):
        """Sends the head. `framing` is "chunked", "close" (the end of the connection is the end of
        the body), or a number: the Content-Length."""
        self.framing = framing
        if framing == "chunked":
            headers = {**headers, "Transfer-Encoding": "chunked"}
        elif framing == "close":
            self.keep_alive = False
        else:
            headers = {**headers, "Content-Length": str(framing)}
        self._write(self._head(status, headers))

    def frame(self, data):
        """The bytes that carry `data` (not empty) as one chunk."""
        if self.framing == "chunked":
            return b"%x\r\n%b\r\n" % (len(data), data)
        return data

    async def write(self, data, framed=False):
        """Sends body bytes as one write; waits while the client does not read."""
        if data:
            self._write(data if framed else self.frame(data))
            await self._connection.drain()

    def end(self):
        """Ends the body."""
        if self.framing == "chunked":
            self._write(b"0\r\n\r\n")
        self.ended = True

    async def flush(self):
        """Waits (at most 10 s) until the client's kernel has all that was written."""
        transport = self._connection.transport
        sock = transport.get_extra_info("socket")
        left = array.array("i", [0])
        for _ in range(10000):
            if not transport.get_write_buffer_size():
                fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, left)
                if not left[0]:
                    return
            await asyncio.sleep(0.001)

    async def cut(self, reset):
        """Ends the connection where it is: with a reset, or with an orderly close."""
        await self.flush()
        if reset:
            sock = self._connection.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._connection.transport.abort()
        else:
            self._connection.transport.close()
        self.keep_alive = False
        self.ended = True


class Connection(asyncio.Protocol):
    """One socket of the server. `owner` has `handle`, `opened` and `closed`."""

    def __init__(self, owner, connection_id):
        self.owner = owner
        self.id = connection_id
        self.transport = None
        self._buffer = bytearray()
        self._request = None  # its body is still coming
        self._need = 0  # bytes of a body with a length
        self._chunks = None  # the body so far, of a chunked request
        self._task = None
        self._writable = None  # a future while the transport is full
        self._lost = False

    def connection_made(self, transport):
        self.transport = transport
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.owner.opened(self)

    def connection_lost(self, exc):
        self._lost = True
        self.resume_writing()
        if self._task is not None:
            self._task.cancel()
        self.owner.closed(self)

    def eof_received(self):
        # A client that ends its side has left: none of ours half-closes.
        return False

    def pause_writing(self):
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self):
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    async def drain(self):
        if self._lost:
            raise asyncio.CancelledError
        if self._writable is not None:
            await self._writable

    def data_received(self, data):
        self._buffer += data
        self._advance()

    def _advance(self):
        """Starts the next request if it is complete and none is being answered."""
        if self._task is not None or self._lost:
            return
        try:
            request = self._parse()
        except BadRequest as exc:
            response = Response(self, False)
            response.send(exc.status, {"Content-Type": "text/plain"}, f"{exc}\n".encode())
            self.transport.close()
            return
        if request is not None:
            self._task = asyncio.get_running_loop().create_task(self._answer(request))

    async def _answer(self, request):
        response = Response(self, request.keep_alive)
        try:
            await self.owner.handle(request, response)
        finally:
            self._task = None
            if not self._lost:
                if not response.ended or not response.keep_alive:
                    self.transport.close()
                else:
                    self._advance()

    def _parse(self):
        if self._request is None and not self._parse_head():
            return None
        if self._chunks is not None:
            if not self._parse_chunks():
                return None
            body = bytes(self._chunks)
        else:
            if len(self._buffer) < self._need:
                return None
            body = bytes(self._buffer[: self._need])
            del self._buffer[: self._need]
        request, self._request, self._chunks = self._request, None, None
        request.body = body
        return request

    def _parse_head(self):
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 or end > MAX_HEAD_BYTES:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise BadRequest(431, "the head of the request is too long")
            return False
        lines = bytes(self._buffer[:end]).split(b"\r\n")
        del self._buffer[: end + 4]
        parts = lines[0].split(b" ")
        if len(parts) != 3 or parts[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
            raise BadRequest(400, "the request line is not HTTP/1.1")
        headers = {}
        for line in lines[1:]:
            name, colon, value = line.partition(b":")
            if not colon or not _TOKEN.match(name):
                raise BadRequest(400, "a header line is malformed")
            name = name.decode("ascii").lower()
            value = value.strip(b" \t").decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        if parts[2] == b"HTTP/1.1" and "host" not in headers:
            raise BadRequest(400, "the Host header is missing")
        keep_alive = parts[2] == b"HTTP/1.1" and headers.get("connection", "").lower() != "close"
        target = parts[1].decode("latin-1")
        self._request = Request(parts[0].decode("latin-1"), target, headers, keep_alive, self.id)
        self._parse_body_length(headers)
        if headers.get("expect", "").lower() == "100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    def _parse_body_length(self, headers):
        self._need = 0
        coding = headers.get("transfer-encoding")
        length = headers.get("content-length")
        if coding is not None:
            if coding.lower() != "chunked" or length is not None:
                raise BadRequest(400, "the body's length is given twice or in an unknown coding")
            self._chunks = bytearray()
        elif length is not None:
            if not re.fullmatch(r"[0-9]{1,18}", length):
                raise BadRequest(400, "Content-Length is not a number")
            self._need = int(length)
            if self._need > MAX_BODY_BYTES:
                raise BadRequest(413, "the body is too long")

    def _parse_chunks(self):
        while True:
            eol = self._buffer.find(b"\r\n")
            if eol < 0:
                return False
            size_text = bytes(self._buffer[:eol]).partition(b";")[0].strip(b" \t")
            if not re.fullmatch(rb"[0-9A-Fa-f]{1,8}", size_text):
                raise BadRequest(400, "the size of a chunk is not a number")
            size = int(size_text, 16)
            if len(self._chunks) + size > MAX_BODY_BYTES:
                raise BadRequest(413, "the body is too long")
            start = eol + 2
            if size == 0:
                return self._parse_trailers(start)
            if len(self._buffer) < start + size + 2:
                return False
            if self._buffer[start + size : start + size + 2] != b"\r\n":
                raise BadRequest(400, "a chunk does not end where it says")
            self._chunks += self._buffer[start : start + size]
            del self._buffer[: start + size + 2]

    def _parse_trailers(self, start):
        """Drops the lines behind the last chunk; true once the empty one has come."""
        while True:
            eol = self._buffer.find(b"\r\n", start)
            if eol < 0:
                return False
            if eol == start:
                del self._buffer[: eol + 2]
                return True
            start = eol + 2
