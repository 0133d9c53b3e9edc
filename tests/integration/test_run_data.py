"""Bytes stay bytes, whatever they are and however many; and keys stay secret."""

import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from runs import command, descendants, go, look, mind  # noqa: F401

BAD = "a\r\nb\rc\n\0de\u0301\U0001f600"
MIB = 1 << 20


@pytest.mark.parametrize("repeat", [1, 20_000], ids=["small", "blob"])
def test_odd_characters_survive_everything(go, tmp_path, repeat):
    """Query, input, slice to a child, its answer, the run's answer, the view. A lone surrogate cannot
    stand in a file of text, so the code puts it in."""
    text = BAD * repeat
    (tmp_path / "x").write_bytes(text.encode())
    (tmp_path / "query").write_bytes(("Take it.\r\n" + BAD).encode())
    code = ('half = len(x) // 2\n'
            'parts = [x[:half] + "\\udfff", x[half:]]\n'
            'a, b = await launch_subagents(\n'
            '    [{"query": "work \\r\\n\\0\\ud800", "inputs": {"part": p}} for p in parts])\n'
            'print([a, b] == parts)\n'
            'done(a + b)')
    run = go(mind({"Take": code, "work": "done(part)"}), "--input", f"x=@{tmp_path / 'x'}",
             query=f"@{tmp_path / 'query'}")
    assert run.code == 0, run.stderr
    half = len(text) // 2
    answer = text[:half] + "\udfff" + text[half:]
    assert run.stdout.encode("utf-8", "surrogateescape") == (answer + "\n").encode("utf-8", "surrogatepass")
    assert run.events[0]["query"] == "Take it.\r\n" + BAD
    assert run.events[-1]["answer"] == answer
    assert run.nodes()[-1]["output"].startswith("True")
    child = next(e for e in run.events if e["type"] == "add_child")
    assert child["query"] == "work \r\n\0\ud800"


def test_queries_of_models_with_odd_characters(go, server):
    run = go(mind({"go": "done(await llm_query('a\\r\\nb\\0c\\ud800d'))"}, query=lambda r: r.user + "\r\n\0"))
    assert run.answer == "a\r\nb\0c\ufffdd\r\n\0"


def test_bytes_stay_bytes(go, tmp_path):
    data = bytes(range(256)) * 1000
    (tmp_path / "data").write_bytes(data)
    run = go(mind({"go": 'r, = await launch_subagents([{"query": "work", "inputs": {"d": d[:512]}}])\n'
                         'done(f"{type(d).__name__} {len(d)} {d == bytes(range(256)) * 1000} {r}")',
                   "work": "done(repr((type(d).__name__, len(d), d[255:257])))"}),
             "--input", f"d=@{tmp_path / 'data'}")
    assert run.answer == "bytes 256000 True ('bytes', 512, b'\\xff\\x00')"


def private_kib(pid):
    try:
        return int(re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])
    except (OSError, TypeError):
        return 0


def test_a_line_of_100_mb(start_rlmflow, server, command, tmp_path):
    """It is mapped and sent on to children without the engine ever holding it; output is bounded."""
    line = tmp_path / "line"
    with open(line, "wb") as f:
        for _ in range(100):
            f.write(b"0123456789abcdef" * (MIB // 16))
    code = ('r = await launch_subagents([{"query": "work", "inputs": {"t": t}} for _ in range(4)])\n'
            'print(t)\n'
            'done(repr((len(t), t.count("9"), r)))')
    server.set_rules(mind({"go": [code], "work": "done(t.count('f'))"}))
    args, path = command(server, "--input", f"t=@{line}")
    process = start_rlmflow(*args)
    private = 0  # what is mapped is shared and can be dropped
    while process.poll() is None:
        private = max([private, *map(private_kib, {process.pid, *descendants(process.pid)})])
        time.sleep(0.01)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert 0 < private < 64 << 10
    assert out.decode().strip() == repr((100 * MIB, 100 * MIB // 16, [str(100 * MIB // 16)] * 4))
    blobs = [p for p in (path / "blobs").iterdir() if "." not in p.name]
    assert len(blobs) <= 2 and all("." in p.name or p.stat().st_size <= 100 * MIB for p in blobs)


def test_a_directory_is_read_lazily_and_links_out_of_it_are_refused(go, tmp_path):
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "one.txt").write_text("1")
    (folder / "sub" / "two.txt").write_text("22")
    (folder / "in.txt").symlink_to("one.txt")
    (folder / "later.txt").write_text("old")
    code = ('print(sorted(d), len(d), d["one.txt"], d["sub/two.txt"])\n'
            'open(PATH, "w").write("new and longer")\n'
            'print(d["later.txt"])\n'
            'r, = await launch_subagents([{"query": "work", "inputs": {"e": d}}])\n'
            'try: d["../folder/one.txt"]\n'
            'except KeyError as e: print("no", e)\n'
            'done(r)').replace("PATH", repr(str(folder / "later.txt")))
    run = go(mind({"go": code, "work": "done(e['sub/two.txt'] + e['later.txt'])"}), "--input", f"d=@{folder}")
    assert run.code == 0, run.stderr
    assert run.answer == "22new and longer"
    assert "later.txt" in run.stderr and "changed" in run.stderr
    assert "no '../folder/one.txt'" in run.nodes()[-1]["output"]
    assert b"new and longer" in (run.path / "journal").read_bytes()


def test_a_file_of_a_directory_that_becomes_a_link_is_refused(go, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a").write_text("fine")
    secret = tmp_path / "secret"
    secret.write_text("secret")
    name = repr(str(folder / "a"))
    code = (f'import os\nos.unlink({name}); os.symlink({str(secret)!r}, {name})\n'
            'try: print(d["a"])\nexcept Exception as e: print(type(e).__name__, e)\n'
            'done("end")')
    run = go(mind({"go": code}), "--input", f"d=@{folder}")
    assert run.answer == "end"
    output = run.nodes()[-1]["output"]
    assert "HostCallError" in output and "a has become a symbolic link" in output, output


# ---- secrets ----

READ_PARENT = r"""
import os, re
found = []
pid = os.getppid()
while pid > 1:
    for name in ("environ", "cmdline", "mem", "auxv", "maps", "stat"):
        try:
            with open(f"/proc/{pid}/{name}", "rb") as f:
                if name == "mem":
                    for line in open(f"/proc/{pid}/maps"):
                        a, b = (int(x, 16) for x in line.split()[0].split("-"))
                        if b - a < 1 << 28 and "r" in line.split()[1]:
                            f.seek(a); found.append(f.read(b - a))
                else:
                    found.append(f.read())
        except (OSError, ValueError, OverflowError):
            pass
    break
text = b"".join(found) + repr(dict(os.environ)).encode()
for name in os.listdir("/proc/self/fd"):
    try: text += os.readlink(f"/proc/self/fd/{name}").encode()
    except OSError: pass
parts = ((b"sk-", b"very-secret"), (b"header-", b"secret"), (b"RLMFLOW_TEST", b"_ID"))
done(repr([a + b in text for a, b in parts]))
"""


@pytest.fixture
def as_ordinary_user(workspace):
    """(words to put before a command, a directory that it may write to): the command runs as a user
    who is not root, which is the current one unless that is root."""
    if os.geteuid() != 0:
        yield [], workspace.state
        return
    base = workspace.base
    for path in (base, *base.rglob("*")):
        os.chown(path, 65534, 65534)
    modes = {p: p.stat().st_mode & 0o7777 for p in base.parents if not p.stat().st_mode & 1}
    try:
        for p, mode in modes.items():
            p.chmod(mode | 0o711)
        yield ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"], workspace.state
    finally:
        for p, mode in modes.items():
            p.chmod(mode)


@pytest.mark.replayed("never", "the run is another user's")
def test_an_ordinary_users_session_finds_no_key_in_its_parent(workspace, server, command,
                                                              as_ordinary_user):
    """To root no process is closed, so this says nothing of it."""
    before, folder = as_ordinary_user
    server.set_rules(mind({"go": READ_PARENT}))
    args, _ = command(server, "--header", "X-Key=header-secret")
    args[args.index("-o") + 1] = folder / "run.rlm"
    done = subprocess.run(
        [*before, workspace.program, *map(str, args)],
        env=workspace.environment({"OPENAI_API_KEY": "sk-very-secret"}), cwd=workspace.cwd,
        capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[False, False, False]\n", done.stdout
    assert "Bearer sk-very-secret" in str(server.requests[0].headers)
    assert "header-secret" in str(server.requests[0].headers)
    for path in folder.rglob("*"):
        assert path.is_dir() or not re.search(b"sk-very-secret|header-secret", path.read_bytes())


def test_a_prompt_of_100_mb_is_refused_as_a_value(go, server):
    code = ("big = 'x' * 100_000_000\n"
            "try: await llm_query(big)\n"
            "except HostCallError as e: print(e.reason, e.message)\n"
            "r = await llm_query_batched(['a', big, 'b', big])\n"
            "done(repr([x.reason if isinstance(x, Failure) else x for x in r]))")
    run = go(mind({"go": code}, query=lambda r: r.user * 2))
    assert (run.code, run.answer) == (0, repr(["aa", "failed", "bb", "failed"])), run.stderr
    assert "failed more than 67108864 bytes" in run.nodes()[-1]["output"]
    assert server.stats()["requests"] == 3


def test_results_that_are_too_many_bytes_together_are_an_error_at_the_call(go):
    """Control characters take six bytes each on the way."""
    code = ("try: await llm_query_batched(['a'] * 180)\n"
            "except HostCallError as e: done(e.reason + ': ' + e.message)")
    run = go(mind({"go": code}, query={"reply": "\x01" * 65_000, "ignore_max_tokens": True,
                                       "ignore_stream": True}))
    assert run.code == 0, run.stderr
    assert run.answer == "limit: the results are more than 64 MiB together; ask for fewer at a time"
