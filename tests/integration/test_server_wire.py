"""The model server's HTTP, its width, its own routes, and the program form."""

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import openai
import pytest

from server import tokens

BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
JSON = {"Content-Type": "application/json"}
TESTS = Path(__file__).resolve().parents[1]


def connect(server):
    return http.client.HTTPConnection(server.host, server.port, timeout=30)


def fetch(connection, method, path, body=None, headers=JSON):
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    return response.status, response.read()


def exchange(server, data, parts=1):
    """Sends bytes, in so many pieces, and returns all until the server closes."""
    with socket.create_connection((server.host, server.port), timeout=30) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        step = -(-len(data) // parts)
        for i in range(0, len(data), step):
            sock.sendall(data[i : i + step])
            if parts > 1:
                time.sleep(0.001)
        result = b""
        while piece := sock.recv(65536):
            result += piece
    return result


def head(extra="", length=None, path="/v1/chat/completions"):
    length = "" if length is None else f"Content-Length: {length}\r\n"
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"{length}{extra}\r\n").encode()


def test_keep_alive_uses_one_connection(server):
    connection = connect(server)
    for _ in range(5):
        assert fetch(connection, "POST", "/v1/chat/completions", BODY)[0] == 200
    stats = server.stats()
    assert (stats["requests"], stats["connections"], stats["max_concurrent"]) == (5, 1, 1)
    assert {r.connection for r in server.requests} == {1}


@pytest.mark.parametrize("how, header", [(True, "close"), ("silent", None)])
def test_connection_that_ends_after_the_answer(server, how, header):
    server.set_rules([{"close_after": how}])
    connection = connect(server)
    connection.request("POST", "/v1/chat/completions", BODY, JSON)
    response = connection.getresponse()
    sock = connection.sock
    assert response.getheader("connection") == header
    assert json.loads(response.read())["choices"]
    if sock is not None and sock.fileno() >= 0:
        assert sock.recv(1) == b""
    server.wait_for(lambda stats: stats["open_connections"] == 0)


def test_requests_in_pieces_chunked_pipelined(server):
    size = len(BODY)
    chunked = (head("Transfer-Encoding: chunked\r\n") + b"5;ext=1\r\n" + BODY[:5].encode()
               + b"\r\n%x\r\n" % (size - 5) + BODY[5:].encode() + b"\r\n0\r\nTrailer: x\r\n\r\n")
    plain = head(length=size) + BODY.encode()
    last = head("Connection: close\r\n", size) + BODY.encode()
    for parts in (1, 40):
        server.reset()
        answer = exchange(server, chunked + plain + last, parts)
        assert answer.count(b"HTTP/1.1 200 OK\r\n") == 3
        assert answer.count(b'"content":"OK"') == 3
        assert server.stats()["max_concurrent"] == 1


def test_expect_continue(server):
    data = head("Expect: 100-continue\r\nConnection: close\r\n", len(BODY)) + BODY.encode()
    answer = exchange(server, data)
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("data, status", [
    (b"nonsense\r\n\r\n", 400), (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n\r\n", 400), (b"GET / HTTP/1.1\r\nHost: x\r\nbad line\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 70000, 431),
    (head("Content-Length: -1\r\n"), 400), (head(f"Content-Length: {10**12}\r\n"), 413),
    (head("Transfer-Encoding: gzip\r\n"), 400),
    (head("Transfer-Encoding: chunked\r\n", 5), 400),
    (head("Transfer-Encoding: chunked\r\n") + b"zz\r\n", 400),
    (head("Transfer-Encoding: chunked\r\n") + b"1\r\nabc\r\n", 400),
])
def test_bad_http_is_refused(server, data, status):
    assert exchange(server, data).startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.parametrize("data, headers", [
    (b"{", JSON), (b"[]", JSON), (b'{"model": NaN}', JSON), (b"\xff", JSON),
    (BODY.replace("hi", "\\ud800").encode(), JSON), (BODY.encode(), {"Content-Type": "text/plain"}),
])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_bodies_that_are_no_request(server, path, data, headers):
    headers = {**headers, "anthropic-version": "2023-06-01"}
    status, body = fetch(connect(server), "POST", path, data, headers)
    assert status == 400 and json.loads(body)["error"]["type"] == "invalid_request_error"
    assert len(server.requests) == 1 and server.requests[0].status == 400


def test_anthropic_needs_its_version(server):
    status, body = fetch(connect(server), "POST", "/v1/messages", BODY)
    assert status == 400 and b"anthropic-version: header is required" in body


def test_paired_surrogates_are_text(server):
    data = BODY.replace("hi", "\\ud83d\\ude42")
    assert fetch(connect(server), "POST", "/v1/chat/completions", data)[0] == 200


def test_split_characters_arrive_apart(server):
    """Each piece is a chunk of its own, and none of the multi-byte characters stays whole."""
    server.set_rules([{"reply": "é漢🙂", "split": "characters", "chunks": 100}])
    body = json.dumps({**json.loads(BODY), "stream": True}).encode()
    answer = exchange(server, head("Connection: close\r\n", len(body)) + body)
    payload = answer.partition(b"\r\n\r\n")[2]
    assert "漢".encode() not in payload and "é".encode() not in payload
    whole, rest = b"", payload
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        whole, rest = whole + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    assert "é漢🙂".encode() in whole and whole.endswith(b"data: [DONE]\n\n")


def test_reset_is_a_reset(server):
    server.set_rules([{"cut_after": 1, "cut": "reset"}])
    body = json.dumps({**json.loads(BODY), "stream": True}).encode()
    with socket.create_connection((server.host, server.port), timeout=30) as sock:
        sock.sendall(head(length=len(body)) + body)
        seen = b""
        with pytest.raises(ConnectionResetError):
            while piece := sock.recv(65536):
                seen += piece
        assert seen.count(b"data: ") == 1


@pytest.mark.parametrize("after", [-1, 0, 2])
@pytest.mark.parametrize("stream", [True, False])
def test_stall(server, after, stream):
    server.set_rules([{"reply": "some words", "stall_after": after}])
    body = json.dumps({**json.loads(BODY), "stream": stream}).encode()
    with socket.create_connection((server.host, server.port), timeout=30) as sock:
        sock.sendall(head(length=len(body)) + body)
        stats = server.wait_for(lambda stats: stats["stalls"] == 1)
        assert stats["open_requests"] == 1 and stats["outcomes"] == {}
        sock.setblocking(False)
        try:
            answer = sock.recv(65536)
        except BlockingIOError:
            answer = None
        if after == -1:
            assert answer is None
        elif stream:
            assert answer.startswith(b"HTTP/1.1 200") and answer.count(b"data: ") == after
        else:
            length = int(answer.partition(b"Content-Length: ")[2].partition(b"\r")[0])
            got = len(answer.partition(b"\r\n\r\n")[2])
            assert got == (length // 2 if after else 0)
    assert server.wait_idle()["outcomes"] == {"stalled": 1}


def test_own_routes(server):
    connection = connect(server)
    status, body = fetch(connection, "POST", "/rules", json.dumps([{"reply": "by rule"}]))
    assert (status, json.loads(body)) == (200, {"rules": 1})
    assert b"by rule" in fetch(connection, "POST", "/v1/chat/completions", BODY)[1]
    stats = json.loads(fetch(connection, "GET", "/stats")[1])
    assert stats == server.stats() and stats["requests"] == 1
    [record] = json.loads(fetch(connection, "GET", "/requests")[1])
    assert record["body"] == json.loads(BODY) and record["outcome"] == "answered"
    assert record["headers"]["content-type"] == "application/json"
    assert fetch(connection, "POST", "/reset")[0] == 200
    assert json.loads(fetch(connection, "GET", "/stats")[1])["requests"] == 0
    assert json.loads(fetch(connection, "GET", "/requests")[1]) == []
    for wrong in ("[{]", '[{"replly": 1}]', '{"a": 1}', "3"):
        assert fetch(connection, "POST", "/rules", wrong)[0] == 400
    assert b"by rule" in fetch(connection, "POST", "/v1/chat/completions", BODY)[1]
    assert fetch(connection, "POST", "/release", "{}")[0] == 400
    assert fetch(connection, "GET", "/v1/nothing")[0] == 404


def test_records_are_bounded(make_server):
    server = make_server(max_records=3, max_body_bytes=2 * len(BODY))
    connection = connect(server)
    for _ in range(5):
        fetch(connection, "POST", "/v1/chat/completions", BODY)
    assert [r.n for r in server.requests] == [3, 4, 5]
    assert [r.body for r in server.requests] == [None, json.loads(BODY), json.loads(BODY)]
    stats = server.stats()
    assert (stats["requests"], stats["records_dropped"], stats["output_tokens"]) == (5, 2, 5)


def test_gate_holds_until_released(server):
    server.set_rules([{"match": {"nth": 1}, "gate": "g", "reply": "held"}, {"reply": "free"}])
    answers = []
    thread = threading.Thread(target=lambda: answers.append(
        fetch(connect(server), "POST", "/v1/chat/completions", BODY)[1]))
    thread.start()
    server.wait_for(lambda stats: stats["open_requests"] == 1)
    assert b"free" in fetch(connect(server), "POST", "/v1/chat/completions", BODY)[1]
    assert server.stats()["open_requests"] == 1 and not answers
    server.release("g")
    thread.join(30)
    assert b"held" in answers[0]
    assert server.stats()["max_concurrent"] == 2


def test_many_connections_at_once(server):
    """600 streams, all open at the same moment, which the rule waits for."""
    width = 600
    server.set_rules([{"together": width, "reply": "x" * 400}])
    body = json.dumps({**json.loads(BODY), "stream": True}).encode()

    async def one():
        reader, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(head("Connection: close\r\n", len(body)) + body)
        answer = await reader.read()
        writer.close()
        return answer

    async def run():
        return await asyncio.gather(*(one() for _ in range(width)))

    answers = asyncio.run(run())
    assert all(a.count(b'"content":"xxxx"') == 100 and a.endswith(b"0\r\n\r\n") for a in answers)
    stats = server.wait_for(lambda stats: stats["open_connections"] == 0)
    assert stats["max_concurrent"] == stats["max_connections"] == stats["requests"] == width
    assert stats["output_tokens"] == 100 * width and stats["outcomes"] == {"answered": width}


def test_tokens():
    texts = ["", "a", "abcd", "abcde", "é" * 5, "a漢b漢c", "🙂🙂", "ab🙂", "abc🙂", "漢" * 7 + "x"]
    for text in texts:
        size = len(text.encode())
        pieces = tokens.pieces(text)
        assert "".join(pieces) == text and "" not in pieces
        assert tokens.count(text) == len(pieces) == -(-size // 4)
        for n in range(len(pieces) + 2):
            assert tokens.first(text, n) == "".join(pieces[:n])
        assert "".join(tokens.pieces(text, 2)) == text


def test_port_that_is_taken(server):
    from server import ModelServer

    with pytest.raises(OSError):
        ModelServer(port=server.port).start()


@pytest.mark.parametrize("form", ["json", "py"])
def test_program_form(tmp_path, form):
    path = tmp_path / f"rules.{form}"
    if form == "json":
        path.write_text(json.dumps({"rules": [{"reply": "from the file"}]}))
    else:
        path.write_text("RULES = [{'reply': lambda request: 'from the ' + 'file'}]\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "server", "--port", "0", "--rules", str(path), "--key", "k",
         "--model", "only"], cwd=TESTS, stdout=subprocess.PIPE, env={"PATH": os.environ["PATH"]})
    try:
        addresses = json.loads(process.stdout.readline())
        client = openai.OpenAI(base_url=addresses["base_url"], api_key="k", max_retries=0)
        reply = client.chat.completions.create(
            model="only", messages=[{"role": "user", "content": "hi"}])
        assert reply.choices[0].message.content == "from the file"
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        process.stdout.close()


def test_program_form_names_what_is_wrong(tmp_path):
    path = tmp_path / "rules.json"
    path.write_text('[{"replly": "x"}]')
    done = subprocess.run([sys.executable, "-m", "server", "--rules", str(path)], cwd=TESTS,
                          stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "unknown fields ['replly']" in done.stderr
