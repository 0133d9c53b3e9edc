"""Sessions of a worker for tests, on every Python that is here, and what most of them ask of one.

`host` is one session for all tests of a file and interpreter; a test that breaks it leaves a new one to the next.
"""
import re

import pytest
from pythons import DEBIAN, interpreters
from worker_host import Host

BIG = {
    "ascii": "".join("line %d of a text\n" % i for i in range(4000)) + "NEEDLE",
    "latin": "".join("línea %d ü\n" % i for i in range(4000)) + "NEEDLE",
    "wide": "".join("行 %d of a text\n" % i for i in range(4000)) + "NEEDLE",
    "astral": "".join("🙂 %d of a text\n" % i for i in range(4000)) + "NEEDLE",
}


@pytest.fixture(params=interpreters(), scope="module",
                ids=lambda p: re.sub(r"^.*/(versions/)?", "", p.replace("/bin/", "-")) if p != DEBIAN else "debian")
def python(request):
    return request.param


INPUTS = {"text": "hello", "n": 7, "list": [1, 2], "class": "keyword", "print": "builtin", "two words": "x",
          "corpus": {"$blob": "b-ascii"}, "docs": {"$dir": {"name": "docs", "files": [["a.txt", 3], ["b.txt", 4]]}}}
TOOLS = [
    {"name": "search", "description": "Finds things.", "parameters": {
        "type": "object", "properties": {"query": {"type": "string", "description": "what to find"},
                                         "limit": {"type": "integer", "default": 5}},
        "required": ["query"]}},
    {"name": "fetch", "description": "Fetches.", "async": True,
     "parameters": {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]}},
]


def make_host(python, **members):
    members.setdefault("inputs", INPUTS)
    members.setdefault("tools", TOOLS)
    host = Host(python, **members)
    host.blob_with_descriptor("b-ascii", BIG["ascii"])
    return host.open()


class Shared:
    """One session for the tests of an interpreter, made anew after a test that broke it."""

    host = None

    def get(self, python):
        if self.host is None or self.host.broken:
            self.close()
            self.host = make_host(python)
        return self.host

    def close(self):
        if self.host is not None:
            self.host.close()


@pytest.fixture(scope="module")
def shared(python):
    shared = Shared()
    yield shared
    shared.close()


@pytest.fixture
def host(shared, python):
    host = shared.get(python)
    host.outputs.clear()
    yield host
    host.broken = host.broken or host.in_cell


def ok(message):
    assert message["error"] is None, message["error"]["traceback"]
    return message["output"]


def echo(call):
    """Answers any call with what it was given."""
    if call["name"] == "llm_query":
        return {"value": "reply to " + call["args"][0]}
    if call["name"] == "llm_query_batched":
        return {"value": ["reply to " + p for p in call["args"][0]]}
    if call["name"] == "launch_subagents":
        return {"value": ["answer %d" % i for i in range(len(call["args"][0]))]}
    if call["name"] == "budget":
        return {"value": {"tokens": 5}}
    if call["name"] == "read_input":
        return {"value": "content of " + call["args"][1]}
    return {"value": {"args": call["args"], "kwargs": call["kwargs"]}}
