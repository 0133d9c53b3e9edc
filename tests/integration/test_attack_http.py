"""Servers that answer with what is no answer: the run fails with a message that tells what came."""

import socket
import threading

import pytest


@pytest.fixture
def raw_server():
    """raw_server(start, piece): the base URL of a server that sends `start`, then `piece` for ever."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(start, piece):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                try:
                    connection.recv(65536)
                    connection.sendall(start)
                    while True:
                        connection.sendall(piece)
                except OSError:
                    pass  # the client has seen enough

    def begin(start, piece):
        threading.Thread(target=serve, args=(start, piece), daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}/v1"

    yield begin
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.mark.parametrize("start, piece, message", [
    (b"HTTP/1.1 200 OK\r\n", b"X-A: " + b"b" * 1000 + b"\r\n", "the head of the answer is larger than"),
    (b"HTTP/1.1 200 OK\r\nX-A: ", b"b" * 10000, "a line of the answer's head is too long"),
    (b"HTTP/1.1 200 ", b"b" * 10000, "a line of the answer's head is too long"),
    (b"HTTP/1.1 200 OK\r\n\r\ndata: ", b"b" * 100000, "an event of the stream is longer than"),
], ids=["lines", "line", "status", "event"])
def test_what_never_ends_is_named(run_rlmflow, raw_server, start, piece, message):
    result = run_rlmflow("run", "go", "--model", "m", "--base-url", raw_server(start, piece), "--quiet")
    assert result.code == 1
    assert message in result.stderr
