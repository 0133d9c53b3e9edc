"""Inputs: bound, mapped, guarded."""
import hashlib
import re

import pytest
from worker_host import Host, SOURCE
from workers import BIG, echo, host, ok, python, shared  # noqa: F401

CHECK_TEXT = """
import gc, pickle, re, copy
big = INPUTS["big"]
plain = "".join(list(big))
gc.collect()
assert type(big) is str and big == plain and hash(big) == hash(plain) and len(big) == len(plain)
assert big[5:50] == plain[5:50] and big[-6:] == "NEEDLE" and big[100] == plain[100] and big[:] == plain
assert big.find("NEEDLE") == len(plain) - 6 and "NEEDLE" in big and big.count("line") == plain.count("line")
assert re.search("NEE(D)LE", big).start() == len(plain) - 6 and len(re.findall("\\\\d+", big)) == len(re.findall("\\\\d+", plain))
assert big.encode() == plain.encode() and {big: 1}[plain] == 1 and big in {plain}
assert pickle.loads(pickle.dumps(big)) == plain and copy.deepcopy(big) == plain and big.isascii() == plain.isascii()
assert big.upper() == plain.upper() and big.split() == plain.split() and big + "x" == plain + "x" and (big < "z") == (plain < "z")
assert "%s" % big == plain and f"{big}" == plain and str(big) == plain and big.strip() == plain.strip() and big.splitlines() == plain.splitlines()
assert open("/dev/null", "w", encoding="utf-8").write(big) == len(plain)
import json, hashlib
assert json.loads(json.dumps(big)) == plain and hashlib.sha256(big.encode()).digest() == hashlib.sha256(plain.encode()).digest()
for _ in range(3):
    junk = [[] for _ in range(10000)]; junk.append(junk); del junk; gc.collect()
grown = big; grown += "y"; assert grown == plain + "y" and big == plain
ns = {}; exec("x = 1", {big: 1}, ns)
big.zfill(3), big.join(["a", "b"]), big.translate({65: None}), big.partition("NEEDLE")
print("fine", sum(1 for c in big) == len(plain))
"""


@pytest.fixture(scope="module")
def big_texts(python):
    names = ["%s_%s" % (name, how) for name in BIG for how in ("mapped", "streamed")]
    host = Host(python, inputs={name: {"$blob": name} for name in names})
    for name in names:
        text = BIG[name.split("_")[0]]
        (host.blob_with_descriptor if name.endswith("mapped") else host.blob_streamed)(name, text)
    yield host.open()
    host.close()


@pytest.mark.parametrize("how", ["mapped", "streamed"])
@pytest.mark.parametrize("name", sorted(BIG))
def test_a_big_text_behaves_like_any(big_texts, how, name):
    name = "%s_%s" % (name, how)
    digest = hashlib.sha256(BIG[name.split("_")[0]].encode()).hexdigest()
    assert ok(big_texts.run(CHECK_TEXT.replace('"big"', repr(name)))) == "fine True\n"
    assert ok(big_texts.run("hashlib.sha256(%s.encode()).hexdigest()" % name)) == repr(digest) + "\n"


def test_a_mapped_text_takes_no_memory_of_its_own(python):
    host = Host(python, inputs={"big": {"$blob": "h1"}})
    try:
        host.blob_with_descriptor("h1", "x" * 40_000_000)
        host.open()
        assert ok(host.run("len(big), big.count('x')")) == "(40000000, 40000000)\n"
        anonymous = int(re.search(r"RssAnon:\s+(\d+)", open("/proc/%d/status" % host.process.pid).read()).group(1))
        assert anonymous < 40_000
    finally:
        host.close()


def test_bytes_inputs_and_small_descriptors(python):
    host = Host(python, inputs={"data": {"$blob": "h1"}, "empty": {"$blob": "h2"}, "tiny": {"$blob": "h3"}})
    try:
        data = bytes(range(256)) * 1000
        host.blob_with_descriptor("h1", data)
        host.blob_with_descriptor("h2", "")
        host.blob_streamed("h3", b"tiny")
        host.open()
        assert ok(host.run("data == bytes(range(256)) * 1000, empty, tiny")) == "(True, '', b'tiny')\n"
    finally:
        host.close()


def test_inputs_are_bound_and_cannot_be_changed(host):
    assert ok(host.run("text, n, list(INPUTS)[:3]")) == "('hello', 7, ['text', 'n', 'list'])\n"
    assert ok(host.run("print is INPUTS['print'], INPUTS['two words']")) == "(False, 'x')\n"
    for code in ("INPUTS['x'] = 1", "del INPUTS['text']", "INPUTS.update(a=1)", "INPUTS.pop('text')", "INPUTS.clear()"):
        error = host.run(code)["error"]
        assert error["type"] == "TypeError" and "INPUTS cannot be changed" in error["message"]
    error = host.run("INPUTS['nope']")["error"]
    assert error["type"] == "KeyError" and "text" in error["message"]


@pytest.mark.parametrize("code, line", [
    ("x = 1\ntext = text.upper()\nprint('not reached')", 2),
    ("text += 'x'", 1), ("text: str = 'x'", 1), ("for text in 'ab':\n    print('not reached')", 1),
    ("for n in range(3): pass", 1), ("with open('/dev/null') as text:\n    print('not reached')", 1),
    ("import os as text", 1), ("from os import path as text", 1), ("def text(): pass", 1), ("class text: pass", 1),
    ("(text := 'x')", 1), ("if (text := 'x'):\n    print('not reached')", 1), ("del text", 1),
    ("a, (text, b) = 1, (2, 3)", 1), ("[text for q in 'a' if (text := q)]", 1),
    ("def f():\n    global text\n    text = 5\nf()", 3),
    ("try: 1/0\nexcept Exception as text: print('not reached')", 2),
    ("if 1:\n    text = 2\n    print('not reached')", 2),
    ("async def llm_query(p): return 1", 1), ("INPUTS = {}", 1), ("done = True", 1), ("budget = 3", 1),
    ("text = await llm_query('q')", 1),
])
def test_the_names_of_inputs_keep_their_values(host, code, line):
    message = host.run(code, echo)
    assert message["error"] and message["error"]["type"] == "InputNameError", message
    assert "another name" in message["error"]["message"] and "not reached" not in message["output"]
    assert 'line %d, in' % line in message["error"]["traceback"]
    assert ok(host.run("text, n, callable(done), type(INPUTS).__name__, callable(budget)")) == "('hello', 7, True, 'Inputs', True)\n"


@pytest.mark.parametrize("code", [
    "text = INPUTS['text']", "def f(text): text = text.upper(); return text\nf('x')\nNone", "[text for text in 'ab']\nNone",
    "class C:\n    text = 1", "f = lambda text: text", "def g():\n    n = 1\n    return n\ng()\nNone", "c = type('C', (), {})()\nc.text = 1",
    "mytext = 1",
])
def test_local_names_are_free(host, code):
    assert ok(host.run(code)) == ""
    assert ok(host.run("text")) == "'hello'\n"


def test_names_changed_by_a_trick_are_restored(host):
    message = host.run("globals()['text'] = 5")
    assert any("`text`" in note for note in message["notes"]) and ok(host.run("text")) == "'hello'\n"


def test_a_directory_is_read_when_asked(host):
    assert ok(host.run("len(docs), list(docs), docs.sizes['b.txt'], 'a.txt' in docs")) == "(2, ['a.txt', 'b.txt'], 4, True)\n"
    assert ok(host.run("docs['a.txt'] + docs['a.txt']", echo)) == "'content of a.txtcontent of a.txt'\n"
    assert [c["args"] for c in host.calls] == [["docs", "a.txt"]]
    assert host.run("docs['no']")["error"]["type"] == "KeyError"
    assert ok(host.run("dict(docs.items())", echo)) == "{'a.txt': 'content of a.txt', 'b.txt': 'content of b.txt'}\n"
    assert len(host.calls) == 1


def test_env(host):
    assert ok(host.run("ENV")) == "{'RLMFLOW_AGENT_ID': 'root'}\n"
    assert ok(host.run("import os\nsorted(k for k in os.environ if k.startswith('RLM'))")) == "[]\n"


def test_a_mapping_that_fails_is_replaced_by_a_copy(python):
    """The same worker with a layout check that cannot hold."""
    broken = SOURCE.replace('"a", (1, False): "\\xe9"', '"\\xe9", (1, False): "a"')
    assert broken != SOURCE
    host = Host(python, source=broken, inputs={"big": {"$blob": "h1"}})
    try:
        host.blob_with_descriptor("h1", BIG["latin"])
        host.open()
        assert host.ready["mapped"] is False and host.ready["why"]
        assert ok(host.run(CHECK_TEXT)) == "fine True\n"
    finally:
        host.close()
