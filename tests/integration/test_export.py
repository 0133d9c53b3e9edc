"""Runs in other forms: JSON, SQLite, the directory of the Python project, packs; and back."""

import io
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import tarfile
import time

import pytest
from journal import Journal, cut
from replies import cell
from runs import command, go, look, mind  # noqa: F401

BIG = "é" * 40000 + "x" * 60000  # a blob as an input
ROOT = ["n = len(INPUTS['corpus'])\nprint(n, await llm_query('a note'))",
        "parts = await launch_subagents([{'query': 'work b', 'name': 'b'}, {'query': 'work a', 'name': 'a-a'},"
        " {'query': 'work c', 'name': 'a_a', 'inputs': {'corpus': INPUTS['corpus']}}])\n"
        "print('z' * 70000)\nprint(parts)",
        "done('|'.join(parts) + chr(0xdc80) + chr(0) + 'end')"]
STORY = {"go": ROOT, "work b": ["done('B')"], "work a": ["1/0", "done('A')"],
         "work c": ["done(str(len(INPUTS['corpus'])))"]}
ANSWER = "B|A|100000\udc80\0end"


@pytest.fixture
def whole(go, tmp_path):
    (tmp_path / "corpus.txt").write_text(BIG)
    run = go(mind(STORY), "--input", f"corpus=@{tmp_path}/corpus.txt", "--price", "1/2")
    assert run.code == 0, run.stderr
    return run


@pytest.fixture
def export(run_rlmflow, tmp_path):
    """export(run, format, name, code=0): (the path, what was said)."""
    def make(path, kind, name, code=0):
        r = run_rlmflow("export", path, "--format", kind, "-o", tmp_path / name)
        assert r.code == code and r.stdout == "", r.stderr
        return tmp_path / name, r.stderr

    return make


def walk(graph):
    """All graphs of an exported tree, in preorder."""
    yield graph
    for child in graph["children"]:
        yield from walk(child)


def leftovers(directory):
    return [p.name for p in directory.iterdir() if ".part-" in p.name]


# ---- JSON -------------------------------------------------------------------------------------


def test_json_holds_what_view_shows_with_large_texts_whole(whole, export, run_rlmflow, tmp_path):
    path, _ = export(whole.path, "json", "run.json")
    document = json.loads(path.read_text())
    assert (document["format"], document["format_version"], document["note"]) == ("rlmflow-run", 1, None)
    assert document["answer"] == ANSWER and document["reason"] == "answered" and document["agents"] == 4
    assert document["options"]["limits"]["max_depth"] == 2
    graphs = list(walk(document["graph"]))
    assert [g["agent_id"] for g in graphs] == ["root", "root.b", "root.a-a", "root.a_a"]
    for g in graphs:
        assert g["nodes"] == whole.nodes(g["agent_id"])
    assert graphs[0]["inputs"]["corpus"] == BIG and graphs[3]["inputs"]["corpus"] == BIG
    assert any("z" * 70000 in node.get("output", "") for node in graphs[0]["nodes"])
    usage = document["usage"]
    assert usage == graphs[0]["usage_with_children"]
    assert usage["calls"] == sum(g["usage"]["calls"] for g in graphs) == 8
    assert usage["cost_nano"] / 1e9 == pytest.approx(whole.usage["cost"]) and usage["cost_nano"] > 0
    assert oct(path.stat().st_mode & 0o777) == "0o600"
    piped = run_rlmflow("export", whole.path)
    assert piped.stdout_bytes == path.read_bytes() and piped.stderr == ""
    for name in ("-", "/dev/stdout"):
        assert run_rlmflow("export", whole.path, "-o", name).stdout_bytes == path.read_bytes()


def test_a_reader_that_leaves_is_no_fault_and_a_full_disk_is_one(whole, run_rlmflow, workspace):
    r = run_rlmflow("export", whole.path, "-o", "/dev/full")
    assert r.code == 1 and "No space left" in r.stderr
    p = subprocess.run(["/bin/bash", "-c", '"$0" export "$1" | head -c 10', workspace.program, whole.path],
                       capture_output=True, text=True)
    assert p.stdout == '{"format":' and p.stderr == ""


def test_what_is_damaged_is_exported_up_to_there(whole, export, tmp_path):
    records = Journal(whole.path).records
    bad = tmp_path / "bad.rlm"
    shutil.copytree(whole.path, bad)
    data = bytearray((bad / "journal").read_bytes())
    place = next(i for i, r in enumerate(records) if r.kind == "child")
    data[records[place - 1].end + 12] ^= 4
    (bad / "journal").write_bytes(data)
    for kind in ("json", "sqlite", "rlmflow-python"):
        _, said = export(bad, kind, f"bad.{kind}")
        assert "damaged at byte" in said
    document = json.loads((tmp_path / "bad.json").read_text())
    assert "damaged at byte" in document["note"] and document["agents"] == 1 and document["answer"] is None
    db = sqlite3.connect(tmp_path / "bad.sqlite")
    assert db.execute("SELECT COUNT(*) FROM records").fetchone() == (place,)
    assert "damaged" in db.execute("SELECT value FROM run WHERE key = 'note'").fetchone()[0]


@pytest.mark.replayed("never", "a copy is damaged")
def test_a_value_whose_blob_is_gone_is_missing_and_said_to_be(whole, export, tmp_path):
    copy = tmp_path / "copy.rlm"
    shutil.copytree(whole.path, copy)
    blob = max((copy / "blobs").iterdir(), key=lambda p: p.stat().st_size)
    blob.unlink()
    path, said = export(copy, "json", "gone.json")
    assert "missing" in said
    assert json.loads(path.read_text())["graph"]["inputs"]["corpus"]["$blob"] == blob.name.split(".")[0]


# ---- SQLite -----------------------------------------------------------------------------------


def test_a_database_holds_agents_nodes_cells_calls_usage_and_records(whole, export):
    path, _ = export(whole.path, "sqlite", "run.db")
    assert oct(path.stat().st_mode & 0o777) == "0o600"
    db = sqlite3.connect(path)
    ask = lambda sql, *args: db.execute(sql, args).fetchall()  # noqa: E731
    assert ask("PRAGMA integrity_check") == [("ok",)] and ask("PRAGMA foreign_key_check") == []
    assert ask("PRAGMA user_version") == [(1,)]
    assert ask("SELECT agent_id, parent_id, position, depth, reason FROM agents ORDER BY rowid") == [
        ("root", None, 0, 0, "answered"), ("root.b", "root", 0, 1, "answered"),
        ("root.a-a", "root", 1, 1, "answered"), ("root.a_a", "root", 2, 1, "answered")]
    assert json.loads(ask("SELECT inputs FROM agents WHERE agent_id = 'root'")[0][0])["corpus"] == BIG
    for agent in ("root", "root.a-a"):
        nodes = ask("SELECT seq, node_id, type, content FROM nodes WHERE agent_id = ? ORDER BY seq", agent)
        assert [n[:3] for n in nodes] == [(n["seq"], n["id"], n["type"]) for n in whole.nodes(agent)]
    assert ask("SELECT COUNT(*) FROM nodes WHERE instr(output, ?)", "z" * 70000)[0][0] == 1
    # What is no UTF-8 stays as it is.
    assert ask("SELECT result FROM nodes WHERE agent_id = 'root' AND type = 'done_output'") == [
        (ANSWER.encode("utf-8", "surrogatepass"),)]
    records = Journal(whole.path).records
    assert ask("SELECT name, payload IS NOT NULL FROM records ORDER BY offset") == [
        (r.kind, 1) for r in records]
    sums = dict(zip(("calls", "input_tokens", "output_tokens", "cost_nano"), ask(
        "SELECT SUM(calls), SUM(input_tokens), SUM(output_tokens), SUM(cost_nano) FROM usage")[0]))
    assert {k: sums[k] for k in ("calls", "input_tokens", "output_tokens")} == {
        k: whole.usage[k] for k in ("calls", "input_tokens", "output_tokens")}
    assert sums["cost_nano"] / 1e9 == pytest.approx(whole.usage["cost"])
    assert ask("SELECT reply, cell, part FROM usage WHERE kind = 'llm_query'") == [("noted", 1, 0)]
    calls = [(r["agent"], r["call"], r["name"]) for r in records if r.kind == "call_started"]
    assert sorted(ask("SELECT agent_id, call, name FROM calls")) == sorted(calls)
    launch = ask("SELECT value, delivered FROM calls WHERE name = 'launch_subagents'")
    assert [(json.loads(v), d) for v, d in launch] == [(["B", "A", "100000"], 1)]
    cells = [(r["agent"], r["cell"], r["code"]) for r in records if r.kind == "cell_started"]
    assert sorted(ask("SELECT agent_id, cell, code FROM cells")) == sorted(cells)


def charged(path):
    """The sums of a database's usage, and {kind: rows}."""
    db = sqlite3.connect(path)
    sums = db.execute("SELECT SUM(calls), SUM(input_tokens), SUM(output_tokens), SUM(cost_nano), "
                      "SUM(estimated) FROM usage WHERE kind != 'open'").fetchone()
    assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    return sums, dict(db.execute("SELECT kind, COUNT(*) FROM usage GROUP BY kind").fetchall())


def sums_of(path, export, name):
    usage = json.loads(export(path, "json", name)[0].read_text())["usage"]
    return tuple(usage[k] for k in ("calls", "input_tokens", "output_tokens", "cost_nano", "estimated"))


@pytest.mark.parametrize("node, agents", [("root:turn1", 1), ("root:turn2", 4), ("root.a-a:turn1", 4)])
def test_a_database_of_a_rewound_run_has_what_was_spent_and_not_what_was_undone(
        whole, export, run_rlmflow, node, agents):
    r = run_rlmflow("rewind", f"{whole.path}@{node}")
    assert r.code == 0, r.stderr
    path, _ = export(whole.path, "sqlite", "run.db")
    sums, kinds = charged(path)
    assert sums == sums_of(whole.path, export, "run.json") and kinds["removed"] > 0 and "attempt" not in kinds
    db = sqlite3.connect(path)
    assert db.execute("SELECT COUNT(*) FROM agents").fetchone() == (agents,)
    stray = "SELECT * FROM {0} a WHERE NOT EXISTS (SELECT * FROM {1} b WHERE a.agent_id = b.agent_id AND {2})"
    for words in (("cells", "nodes", "seq = node_seq AND type = 'exec_action' AND b.code = a.code"),
                  ("calls", "cells", "a.cell = b.cell"), ("usage", "agents", "1")):
        assert db.execute(stray.format(*words)).fetchall() == []


@pytest.mark.parametrize("kind", ["turn", "llm_query"])
def test_a_database_names_what_is_reserved_and_not_settled(whole, export, run_rlmflow, tmp_path, kind):
    """Stopped while a reply was on its way: the rest of a lost call is what `resume` charges for it."""
    member = "turn" if kind == "turn" else "call"
    held = [r for r in Journal(whole.path).all("reserve") if member in r.members][-1]
    copy = cut(whole.path, tmp_path / "cut.rlm", held.end)
    path, _ = export(copy, "sqlite", "cut.db")
    rows = sqlite3.connect(path).execute(
        "SELECT agent_id, ask, model, calls, input_tokens, output_tokens, cost_nano, estimated, cell, call, "
        "part FROM usage WHERE kind = 'open'").fetchall()
    assert rows == [(held["agent"], held["ask"], held["model"], 1, held["input_tokens"], held["output_tokens"],
                     held["cost_nano"], 1, held.get("cell"), held.get("call"), held.get("part"))]
    assert charged(path)[0] == sums_of(copy, export, "cut.json")
    assert run_rlmflow("resume", copy, "--restore", "replay", "-q").code == 0
    path, _ = export(copy, "sqlite", "again.db")
    sums, kinds = charged(path)
    assert sums == sums_of(copy, export, "again.json") and kinds["attempt"] == 1 and "open" not in kinds
    models = sqlite3.connect(path).execute("SELECT DISTINCT model FROM usage").fetchall()
    assert models == [(held["model"],)]


def test_libsqlite3_is_loaded_only_for_a_database(whole, run_rlmflow, tmp_path):
    loaded = lambda *words: "libsqlite3.so" in run_rlmflow(*words, env={"LD_DEBUG": "files"}).stderr  # noqa: E731
    assert not loaded("version") and not loaded("export", whole.path, "-o", tmp_path / "a.json")
    assert loaded("export", whole.path, "--format", "sqlite", "-o", tmp_path / "a.db")


# ---- targets ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["json", "sqlite", "rlmflow-python", "pack"])
def test_a_path_that_exists_is_refused_and_stays(whole, run_rlmflow, tmp_path, kind):
    verb = ["pack", whole.path] if kind == "pack" else ["export", whole.path, "--format", kind]
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dir").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("file", "dir", "link", "file/x", "nodir/x", whole.path.name):
        r = run_rlmflow(*verb, "-o", tmp_path / name)
        assert r.code == 2 and r.stdout == "" and str(tmp_path / name) in r.stderr
    assert (tmp_path / "file").read_text() == "mine" and not list((tmp_path / "dir").iterdir())
    assert not (tmp_path / "nowhere").exists() and not leftovers(tmp_path)
    assert run_rlmflow(*verb, "-o", tmp_path / "new/").code in (0, 2)
    if kind in ("sqlite", "rlmflow-python"):
        assert run_rlmflow(*verb, "-o", "/dev/stdout").code == 2 and run_rlmflow(*verb).code == 2


@pytest.mark.parametrize("kind", ["json", "sqlite", "rlmflow-python", "pack", "unpack"])
def test_a_disk_that_is_full_leaves_nothing(whole, run_rlmflow, workspace, tmp_path, kind):
    verb = ["pack", whole.path] if kind == "pack" else ["export", whole.path, "--format", kind]
    if kind == "unpack":
        assert run_rlmflow("pack", whole.path, "-o", tmp_path / "p.tar").code == 0
        verb = ["unpack", tmp_path / "p.tar"]
    r = subprocess.run([workspace.program, *verb, "-o", tmp_path / "out"], capture_output=True, text=True,
                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)))
    assert r.returncode == 1 and "rlmflow: " in r.stderr
    assert not (tmp_path / "out").exists() and not leftovers(tmp_path)


def test_what_is_no_run_is_no_export(run_rlmflow, tmp_path):
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").write_text("x")
    for name in ("dir", "file", "nothing"):
        for verb in (["export"], ["export", "--format", "sqlite"], ["export", "--format", "rlmflow-python"],
                     ["pack"]):
            r = run_rlmflow(verb[0], tmp_path / name, *verb[1:], "-o", tmp_path / "out")
            assert r.code == 2 and name in r.stderr and not (tmp_path / "out").exists()
    assert not leftovers(tmp_path)


# ---- the directory of the Python project ------------------------------------------------------


def test_the_saved_form_has_the_layout_of_that_project(whole, export):
    path, _ = export(whole.path, "rlmflow-python", "saved")
    manifest = json.loads((path / "graph.json").read_text())
    assert manifest["root_agent_id"] == "root"
    assert manifest["agents"] == ["root", "root.b", "root.a-a", "root.a_a"]
    directories = {str(p.parent.relative_to(path / "agents")) for p in path.rglob("agent.json")}
    assert directories == {"root", "root/b", "root/a-a", "root/a_a"}
    agent = json.loads((path / "agents/root/agent.json").read_text())
    assert set(agent) == {"agent_id", "graph_id", "depth", "query", "inputs", "model", "output_schema",
                          "parent_agent_id"} and agent["inputs"]["corpus"] == BIG
    lines = [json.loads(line) for line in
             (path / "agents/root/session.jsonl").read_text().splitlines()]
    fields = {"user_query": {"content"}, "llm_output": {"content", "code"}, "exec_action": {"code"},
              "exec_output": {"content", "output"}, "resume_action": {"resumed_from"},
              "supervising_output": {"content", "output", "waiting_on"},
              "done_output": {"content", "result", "output"}}
    for line in lines:
        assert set(line) - {"type", "id", "agent_id", "seq", "metadata"} == fields[line["type"]]
    assert [line["seq"] for line in lines] == list(range(len(lines)))
    usage = [line["metadata"]["usage"] for line in lines if line["type"] == "llm_output"]
    assert all(u["input_tokens"] > 0 and u["output_tokens"] > 0 for u in usage)
    latest = json.loads((path / "agents/root/latest.json").read_text())
    assert latest["terminal"] and latest["result"] == ANSWER and latest["type"] == "done_output"


def test_what_that_project_saved_is_viewed_and_exported_but_goes_not_on(whole, export, run_rlmflow, look):
    path, _ = export(whole.path, "rlmflow-python", "saved")
    run = look(run_rlmflow("view", path), path)
    assert list(run.ends) and run.ends == whole.ends
    for agent in whole.ends:
        keys = ("id", "type", "content", "code", "output", "error", "result", "agents")
        assert [{k: n.get(k) for k in keys} for n in run.nodes(agent)] == [
            {k: n.get(k) for k in keys} for n in whole.nodes(agent)]
    assert [e["agent_id"] for e in run.events if e["type"] == "add_child"] == ["root.b", "root.a-a", "root.a_a"]
    for kind in ("json", "sqlite", "rlmflow-python"):
        export(path, kind, f"again.{kind}")
    assert json.loads((path.parent / "again.json").read_text())["answer"] == ANSWER
    for verb in (["resume", path], ["replay", path], ["pack", path, "-o", path.parent / "p.tar"]):
        r = run_rlmflow(*verb)
        assert r.code == 2 and "saved by the Python project" in r.stderr


def save(path, sessions, graph=None):
    """A directory as that project saves it: {"root/child": (agent.json, lines of session.jsonl)}."""
    path.mkdir()
    (path / "graph.json").write_text(json.dumps(graph or {"root_agent_id": "root", "agents": ["root"]}))
    for place, (agent, lines) in sessions.items():
        directory = path / "agents" / place
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "agent.json").write_text(agent if isinstance(agent, str) else json.dumps(agent))
        (directory / "session.jsonl").write_text("\n".join(
            line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
    return path


QUERY = {"type": "user_query", "id": "n_00000001", "agent_id": "root", "seq": 0, "metadata": {}, "content": "q"}


@pytest.mark.parametrize("result, reason", [("42", "answered"), ("[max_iters exceeded]", "max_iters"),
                                            ("[budget exceeded]", "budget"), ("[terminated]", "terminated")])
def test_the_ends_of_that_project_are_understood(run_rlmflow, tmp_path, look, result, reason):
    done = {"type": "done_output", "id": "n_2", "metadata": {}, "content": "", "result": result, "output": ""}
    path = save(tmp_path / "s", {"root": ({"agent_id": "root", "query": "q"}, [QUERY, done])})
    assert look(run_rlmflow("view", path), path).ends == {"root": reason}


def test_hostile_directories_are_shown_as_far_as_they_go(run_rlmflow, tmp_path):
    agent = {"agent_id": "root", "query": "q", "inputs": {"a": 1}}
    path = save(tmp_path / "s", {
        "root": (agent, [QUERY, "no json", {"type": "unheard_of"}, [], 7,
                         {"type": "llm_output", "content": 5, "metadata": {"usage": {"input_tokens": -9}}}]),
        "root/good": ({"agent_id": "root.good"}, []), "root/bad": ("{", [])})
    (path / "agents/root/loop").symlink_to("..")
    os.mkfifo(path / "agents/root/pipe")
    (path / "agents/root/none").mkdir()
    r = run_rlmflow("view", path)
    assert r.code == 0 and "root" in r.stdout and "good" in r.stdout
    assert "6 parts could not be understood" in r.stderr
    os.unlink(path / "agents/root/session.jsonl")
    os.mkfifo(path / "agents/root/session.jsonl")
    assert run_rlmflow("view", path).code == 0


@pytest.mark.parametrize("break_it", [
    lambda p: shutil.rmtree(p / "agents"), lambda p: (p / "graph.json").write_text("[]"),
    lambda p: (p / "graph.json").write_text("{"), lambda p: shutil.rmtree(p / "agents/root"),
    lambda p: (p / "agents/root/agent.json").write_text("nope"),
    lambda p: (p / "agents/root/agent.json").unlink()])
def test_a_directory_without_its_root_is_refused(run_rlmflow, tmp_path, break_it):
    path = save(tmp_path / "s", {"root": ({"agent_id": "root"}, [QUERY])})
    assert run_rlmflow("view", path).code == 0
    break_it(path)
    r = run_rlmflow("view", path)
    assert r.code == 2 and str(path) in r.stderr and r.stdout == ""


# ---- packs ------------------------------------------------------------------------------------


def content(directory):
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*")
            if p.is_file() and not p.name.endswith((".w1", ".w2", ".w4"))}


def test_a_pack_becomes_the_same_run_again(whole, run_rlmflow, tmp_path):
    assert run_rlmflow("pack", whole.path, "-o", tmp_path / "p.tar").code == 0
    with tarfile.open(tmp_path / "p.tar") as tar:  # any tar program can read it
        names = tar.getnames()
        assert f"{whole.path.name}/journal" in names and all(n.split("/")[0] == whole.path.name for n in names)
    r = run_rlmflow("unpack", tmp_path / "p.tar", "-o", tmp_path / "again.rlm")
    assert r.code == 0 and content(tmp_path / "again.rlm") == content(whole.path)
    piped = run_rlmflow("pack", whole.path, "-o", "-")
    assert piped.stdout_bytes == (tmp_path / "p.tar").read_bytes() and piped.stderr == ""
    r = run_rlmflow("unpack", "-", "-o", tmp_path / "third.rlm", input=piped.stdout_bytes)
    assert r.code == 0 and content(tmp_path / "third.rlm") == content(whole.path)
    assert run_rlmflow("replay", tmp_path / "third.rlm", "-q").code == 0
    assert run_rlmflow("unpack", tmp_path / "p.tar", "-o", tmp_path / "again.rlm").code == 2
    assert run_rlmflow("pack", whole.path).code == 2 and run_rlmflow("unpack", tmp_path / "p.tar").code == 2


def test_a_run_that_was_stopped_goes_on_after_it_was_unpacked(whole, run_rlmflow, server, tmp_path):
    place = next(r for r in Journal(whole.path).records if r.kind == "call_finished")
    stopped = cut(whole.path, tmp_path / "stopped.rlm", place.end)
    assert run_rlmflow("pack", stopped, "-o", tmp_path / "p.tar").code == 0
    assert run_rlmflow("unpack", tmp_path / "p.tar", "-o", tmp_path / "on.rlm").code == 0
    server.set_rules(mind(STORY))
    r = run_rlmflow("resume", tmp_path / "on.rlm", "--restore", "replay")
    assert r.code == 0 and r.stdout_bytes.startswith(b"B|A|100000"), r.stderr


def member(name, data=b"", kind=tarfile.REGTYPE, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(data)
    return info, data


def archive(*members, form=tarfile.USTAR_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


@pytest.fixture
def refuse(run_rlmflow, tmp_path):
    """refuse(bytes, text="", code=2): such a pack is refused and leaves nothing."""
    def check(data, text="", code=2):
        (tmp_path / "bad.tar").write_bytes(data)
        before = sorted(p.name for p in tmp_path.iterdir())
        r = run_rlmflow("unpack", tmp_path / "bad.tar", "-o", tmp_path / "out.rlm")
        assert r.code == code and text in r.stderr and r.stderr, (r.code, r.stderr)
        assert sorted(p.name for p in tmp_path.iterdir()) == before
        return r.stderr

    return check


def test_packs_that_hold_what_no_run_has_are_refused(whole, refuse, tmp_path):
    journal = (whole.path / "journal").read_bytes()
    good, zero = member("r/journal", journal), "0" * 64
    assert "another hash" in refuse(archive(good, member(f"r/blobs/{zero}", b"x")))
    for bad in ("/etc/passwd", "../x", "r/../../x", "r/x", "r/blobs/x", "x/journal", "r/blobs/../journal",
                "r/blobs/" + "A" * 64, "r//journal", "./journal", "journal", f"r/blobs/{zero}.w1"):
        refuse(archive(good, member(bad, b"x")), "not the pack of a run")
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.CONTTYPE):
        refuse(archive(good, member(f"r/blobs/{zero}", b"", kind, "/etc/passwd")), "neither")
        refuse(archive(member("r/journal", b"", kind, "/etc/passwd")), "neither")
    refuse(archive(good, member("r/more", b"", tarfile.DIRTYPE)), "directory")
    refuse(archive(good, good), "twice")
    refuse(archive(member("r/blobs", b"", tarfile.DIRTYPE)), "no journal")
    refuse(archive(member("r/journal", b"hello")), "journal")
    refuse(archive(member("r/journal", b"")), "journal")
    refuse(archive(member("r/" + "n" * 300 + "/journal", journal), form=tarfile.PAX_FORMAT))
    refuse(archive(good) + b"more" * 200, "behind its end")
    for data in (b"", b"x", b"x" * 512, b"\0" * 1024, os.urandom(4096)):
        refuse(data)


def test_sizes_that_lie_and_archives_that_are_cut_are_refused(whole, refuse, tmp_path, run_rlmflow):
    assert run_rlmflow("pack", whole.path, "-o", tmp_path / "p.tar").code == 0
    data = (tmp_path / "p.tar").read_bytes()
    for end in [*range(0, 3000, 500), *range(3000, len(data), 30000), len(data) - 512, len(data) - 1]:
        refuse(data[:end])
    header = bytearray(data)
    at = 512  # the journal's
    for size in (b"00000000000", b"77777777777", b"0000000001x", b"\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
                 b"\x80" + b"\0" * 3 + b"\x7f" * 8, b"-0000000001"):
        header[at + 124:at + 136] = size.ljust(12, b"\0")
        header[at + 148:at + 156] = b" " * 8
        header[at + 148:at + 156] = b"%06o\0 " % sum(header[at:at + 512])
        refuse(bytes(header))
    for place in (at + 3, at + 124, at + 150, at + 156, 257):  # a header's checksum
        flipped = bytearray(data)
        flipped[place] ^= 1
        refuse(bytes(flipped))


def test_a_name_as_long_as_its_field_is_refused(refuse):
    """Its slash is the last byte that a header has for it."""
    info, data = member("r" * 99 + "/", b"", tarfile.DIRTYPE)
    block = bytearray(archive((info, data)))
    block[:100] = b"r" * 99 + b"/"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block[:512])
    assert "neither" in refuse(bytes(block))


def test_an_archive_of_which_only_zeros_come_is_refused(whole, run_rlmflow, workspace, tmp_path):
    assert run_rlmflow("pack", whole.path, "-o", tmp_path / "p.tar").code == 0
    r = subprocess.run(["sh", "-c", 'cat p.tar /dev/zero | "$0" unpack - -o out', workspace.program],
                       cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert r.returncode == 2 and "only zeros come" in r.stderr
    assert not (tmp_path / "out").exists() and not leftovers(tmp_path)


def test_a_run_that_is_removed_while_it_is_packed_is_no_pack(whole, run_rlmflow, start_rlmflow, tmp_path):
    copy = tmp_path / "copy.rlm"
    shutil.copytree(whole.path, copy)
    os.mkfifo(tmp_path / "fifo")
    p = start_rlmflow("pack", copy, "-o", tmp_path / "fifo")
    with open(tmp_path / "fifo", "rb") as reader:
        assert reader.read(1)  # the rest does not fit into the pipe
        assert run_rlmflow("runs", "remove", copy).code == 0
        while reader.read(1 << 20):
            pass
    assert p.wait(60) == 2 and b"removed while it was packed" in p.stderr.read()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_the_middle_leaves_nothing(start_rlmflow, tmp_path, number):
    os.mkfifo(tmp_path / "fifo")
    writer = os.open(tmp_path / "fifo", os.O_RDWR)
    os.write(writer, archive(member("r/journal", b"x" * 1000))[:700])
    p = start_rlmflow("unpack", tmp_path / "fifo", "-o", tmp_path / "out")
    while not list(tmp_path.glob("out.part-*/journal")):
        assert p.poll() is None
        time.sleep(0.01)
    p.send_signal(number)
    assert p.wait(60) == 130
    os.close(writer)
    assert not (tmp_path / "out").exists() and not leftovers(tmp_path)


@pytest.mark.replayed("never", "a copy is damaged")
def test_a_damaged_blob_is_not_packed(whole, run_rlmflow, tmp_path):
    copy = tmp_path / "copy.rlm"
    shutil.copytree(whole.path, copy)
    blob = next(p for p in (copy / "blobs").iterdir() if len(p.name) == 64)
    blob.chmod(0o600)
    data = bytearray(blob.read_bytes())
    data[5] ^= 1
    blob.write_bytes(data)
    r = run_rlmflow("pack", copy, "-o", tmp_path / "p.tar")
    assert r.code == 2 and blob.name in r.stderr and not (tmp_path / "p.tar").exists()
    assert not leftovers(tmp_path)


def test_a_living_run_is_packed_as_it_is(run_rlmflow, start_rlmflow, scripted_model, tmp_path):
    model = scripted_model([({}, cell("import time\nopen('begun', 'w').close()\ntime.sleep(600)"))])
    p = start_rlmflow("run", "sleep", "--model", model, "-q", "-o", tmp_path / "live.rlm", "--cwd", tmp_path)
    while not (tmp_path / "begun").exists():
        assert p.poll() is None
    assert run_rlmflow("pack", tmp_path / "live.rlm", "-o", tmp_path / "p.tar").code == 0
    p.kill()
    p.wait()
    assert run_rlmflow("unpack", tmp_path / "p.tar", "-o", tmp_path / "copy.rlm").code == 0
    r = run_rlmflow("view", tmp_path / "copy.rlm")
    assert r.code == 0 and r.stderr.startswith("the run was stopped; go on with: ") and r.stderr.count("\n") == 1
