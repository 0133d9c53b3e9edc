"""A recorded run again, without its model: the same, or the first difference at the right place."""

import copy
import functools
import shutil
import subprocess

import pytest
from journal import Journal, cut, rewrite
from pythons import DEBIAN
from replays import WITHOUT_NETWORK, without_network
from runs import Text, command, go, look, mind  # noqa: F401
from test_resume import (ANSWER, INPUT, TORTURE, boundaries, bought, resumer, story,  # noqa: F401
                         whole)


def replay(run_rlmflow, path, *flags, code=0):
    result = run_rlmflow("replay", path, "-q", *flags, timeout=60)
    assert result.code == code, result.stderr
    return result.stderr


FORGED = pytest.mark.replayed("never", "the copies are changed, and differ")
BY_ITSELF = pytest.mark.replayed("never", "the test replays the runs itself")


@BY_ITSELF
def test_runs_are_replayed_with_the_network_closed(server):
    """What every replay of the tests stands behind (replays.py) has no way to a server of theirs."""
    connect = f"import socket; socket.create_connection(('127.0.0.1', {server.port}), 60)"
    refused = subprocess.run([*WITHOUT_NETWORK, "true"], capture_output=True, text=True).stderr
    assert without_network(), (f"{' '.join(WITHOUT_NETWORK)} is refused here, so that runs are replayed with the"
                               f" network open: allow user namespaces ({refused.strip()})")
    assert subprocess.run([DEBIAN, "-c", connect]).returncode == 0
    closed = subprocess.run([*without_network(), DEBIAN, "-c", connect], capture_output=True, text=True)
    assert closed.returncode == 1 and "Network is unreachable" in closed.stderr, closed.stderr


@BY_ITSELF
@pytest.mark.parametrize("flags", [(), ("--execute",)])
def test_a_run_is_replayed_with_its_server_gone(whole, server, run_rlmflow, flags):
    server.stop()
    said = replay(run_rlmflow, whole.path, *flags)
    assert f"{len(whole.ends) * 3 + 2} cells ran" in said if flags else "0 cells ran" in said, said


@BY_ITSELF
@pytest.mark.parametrize("flags", [(), ("--execute",)])
def test_what_every_kill_leaves_can_be_replayed(whole, tmp_path, server, run_rlmflow, resumer, flags):
    server.stop()

    def at(record):
        replay(run_rlmflow, cut(whole.path, tmp_path / f"cut{record.end}.rlm", record.end), *flags)

    resumer.each(at, boundaries(Journal(whole.path).records[1:-2], 12))


@BY_ITSELF
def test_resumed_runs_are_replayed(whole, tmp_path, run_rlmflow, resumer):
    def at(where):
        record, mode = where
        copy = cut(whole.path, tmp_path / f"{mode}{record.end}.rlm", record.end)
        resumer.resume(copy, "-q", "--restore", mode, "--max-iters", "7")
        replay(run_rlmflow, copy)
        replay(run_rlmflow, copy, "--execute")

    records = Journal(whole.path).records[8:-2:1 if TORTURE else 11]
    resumer.each(at, [(r, mode) for r in records for mode in ("replay", "fresh")])


# ---- what was changed is found where it is ----

def changed(whole, tmp_path, kind, nth=0, change=None, **members):
    """A copy of the run in which the nth record of that kind and these members is changed."""
    record = Journal(whole.path).all(kind, **members)[nth]
    return rewrite(whole.path, tmp_path / "changed.rlm",
                   lambda r: {**r.members, **change(r)} if r.position == record.position else r.members)


CHANGES = {
    # name: (kind, members, nth, change, what the report says)
    "a reply": ("node", {"agent": "root", "type": "llm_output"}, 2,
                lambda r: {"content": r["content"].replace("'two'", "'zwei'")},
                "differs: root, turn 3: the code that was found in a reply"),
    "a reply of a child": ("node", {"agent": "root.w1", "type": "llm_output"}, 1,
                           lambda r: {"content": "no code at all"},
                           "differs: root.w1, turn 2: the code that was found in a reply"),
    "an output": ("node", {"agent": "root", "type": "exec_output"}, 0,
                  lambda r: {"content": "[7]", "output": "[7]\n"},
                  "differs: root, turn 1: the messages that the model is sent"),
    "the prompt": ("reserve", {"agent": "root", "turn": 1}, 0, lambda r: {"messages": "1" * 16},
                   "differs: root, before its first turn: the messages that the model is sent"),
    "an argument": ("call_started", {"name": "llm_query_batched"}, 0, lambda r: {"args": [["one", "two", "4"]]},
                    "differs: root, turn 3, cell 3: a host call that was not made"),
    "a child's task": ("child", {"name": "w1"}, 0, lambda r: {"query": "play"},
                       "differs: root.w1, before its first turn: a sub-agent's task"),
    "a child's inputs": ("child", {"name": "w1"}, 0, lambda r: {"inputs": {"n": 9}},
                         "differs: root.w1, before its first turn: a sub-agent's inputs"),
    "a child's model": ("child", {"name": "w1"}, 0, lambda r: {"model": "another"},
                        "differs: root.w1, before its first turn: a sub-agent's model"),
    "a child's schema": ("child", {"name": "w1"}, 0, lambda r: {"output_schema": '{"type": "null"}'},
                         "differs: root.w1, before its first turn: a sub-agent's output schema"),
    "a child's name": ("node", {"agent": "root", "type": "supervising_output"}, 0,
                       lambda r: {"agents": ["root.w0", "root.w0"]},
                       "differs: root, turn 2, cell 2: which sub-agents were launched"),
    "the answer to a call": ("call_finished", {"agent": "root", "value": ["15:noted", "15:noted"]}, 0,
                             lambda r: {"value": ["15:noted", "16:noted"]},
                             "differs: root, turn 2, cell 2: the answer to a host call"),
    "an answer": ("node", {"agent": "root.w0", "type": "done_output"}, 0, lambda r: {"result": "16:noted"},
                  "differs: root.w0, turn 3: the answer"),
    "a step": ("node", {"agent": "root.child0", "type": "exec_output"}, 0,
               lambda r: {"type": "error_output", "error": "no_code"}, "differs: root.child0, turn 1"),
    "why it ended": ("node", {"agent": "root", "type": "done_output"}, 0, lambda r: {"reason": "max_iters"},
                     "differs: root, turn 5: "),
}


@FORGED
@pytest.mark.parametrize("name", CHANGES)
def test_what_was_changed_is_reported_where_it_is(whole, tmp_path, run_rlmflow, name):
    kind, members, nth, change, said = CHANGES[name]
    if name == "the answer to a call":
        members = {"agent": "root", "value": [v for v in ANSWER.split("|") if "15:" in v]}
    copy = changed(whole, tmp_path, kind, nth, change, **members)
    assert said in replay(run_rlmflow, copy, code=1)


@FORGED
def test_the_two_that_differ_are_shown(whole, tmp_path, run_rlmflow):
    kind, members, nth, change, _ = CHANGES["an answer"]
    told = replay(run_rlmflow, changed(whole, tmp_path, kind, nth, change, **members), code=1)
    assert "  - 16:noted\n  + 15:noted\n" in told


OWN_STEPS = {
    # name: (the node, change, flags, what the report says)
    "what it said": (1, {"content": "Nothing ran."}, (), "differs: root, turn 1: the text of a step"),
    "the kind of an error": (1, {"error": "exec"}, (), "differs: root, turn 1: the kind of an error"),
    "the kind of a step": (1, {"type": "exec_output", "output": ""}, (), "differs: root, turn 1: another kind"
                           " of step\n  - exec_output\n  + error_output\n"),
    "an error that was none": (2, {"type": "error_output", "error": "exec"}, ("--execute",),
                               "differs: root, turn 2, cell 1: how a cell ended\n"
                               "  - error_output: exec\n  - 3\n  + exec_output\n  + 3\n"),
    "another clock": (3, {"error": "exec_timeout"}, ("--execute",),
                      "differs: root, turn 3, cell 2: how a cell ended\n  - error_output: exec_timeout\n"),
}


@FORGED
@pytest.mark.parametrize("name", OWN_STEPS)
def test_steps_that_the_engine_takes_itself_are_compared(go, tmp_path, run_rlmflow, name):
    """A reply without code, a cell that printed, one that failed."""
    nth, change, flags, said = OWN_STEPS[name]
    run = go(mind({"go": [Text("Let me think."), "print(3)", "1 / 0", "done('1')"]}))
    assert run.errors() == ["no_code", "exec"] and run.answer == "1", run.stderr
    shown = [r.position for r in Journal(run.path).all("node", agent="root")
             if r["type"] in ("exec_output", "error_output")]
    copy = rewrite(run.path, tmp_path / "changed.rlm",
                   lambda r: {**r.members, **change} if r.position == shown[nth - 1] else r.members)
    assert said in replay(run_rlmflow, copy, *flags, code=1)


@FORGED
@pytest.mark.parametrize("change", [{"type": "TypeError"}, {"message": "no"}])
def test_how_an_answer_was_refused_is_compared(go, tmp_path, run_rlmflow, change):
    schema = tmp_path / "schema"
    schema.write_text('{"type": "integer"}')
    run = go(mind({"go": "try:\n    done('text')\nexcept ValueError:\n    done(1)"}), "--schema", schema)
    assert run.answer == "1", run.stderr
    place, = [r.position for r in Journal(run.path).all("call_finished") if r.get("error")]
    copy = rewrite(run.path, tmp_path / "changed.rlm", lambda r: {
        **r.members, **({"error": {**r["error"], **change}} if r.position == place else {})})
    assert "differs: root, turn 1, cell 1: the answer to a host call" in replay(run_rlmflow, copy, code=1)


@FORGED
def test_an_output_that_was_changed_is_found_by_running_the_cell(go, tmp_path, run_rlmflow):
    whole = go(mind({"go": ["print('before')", "print(3)", "done('1')"]}))
    copy = changed(whole, tmp_path, "node", 1, lambda r: {"content": "4", "output": "4\n"},
                   agent="root", type="exec_output")
    told = replay(run_rlmflow, copy, "--execute", code=1)
    assert "differs: root, turn 2: the messages that the model is sent" in told, told


@pytest.mark.replayed("steps", "a cell prints the time")
def test_outputs_that_vary_differ_unless_they_are_ignored(go, run_rlmflow):
    run = go(mind({"go": ["print('same')", "import time\nprint(time.time_ns())", "print(object())", "done('1')"]}))
    told = replay(run_rlmflow, run.path, "--execute", code=1)
    assert "root: cell 2 printed something else" in told and "as recorded, but 1 cell printed" in told
    told = replay(run_rlmflow, run.path, "--execute", "--ignore-output")
    assert "root: cell 2 printed something else" in told and "as recorded, but 1 cell printed" in told
    replay(run_rlmflow, run.path)


def test_a_run_that_failed_is_replayed_as_one_that_is_the_same(run_rlmflow, scripted_model, tmp_path):
    path = tmp_path / "failed.rlm"
    assert run_rlmflow("run", "go", "--model", scripted_model([({"turn": 2}, "x")]), "-o", path).code == 1
    told = replay(run_rlmflow, path, "-q")
    assert told == "as recorded: 2 steps and 0 host calls up to the end (failed); 0 cells ran, 0 did not\n"


@pytest.mark.replayed("recorded", "a cell looks at a file that comes later")
def test_a_call_that_is_not_made_any_more_is_reported(go, tmp_path, run_rlmflow):
    marker = tmp_path / "marker"
    run = go(mind({"go": ["x = 1", f"import os\nif not os.path.exists({str(marker)!r}): await llm_query('a')",
                          "done('1')"]}))
    replay(run_rlmflow, run.path, "--execute")
    marker.touch()
    told = replay(run_rlmflow, run.path, "--execute", code=1)
    assert "differs: root, turn 2, cell 2: a host call that was made, and is not\n  - llm_query[\"a\"]" in told


# Its worker is what the program gave it, but for one place.
CHANGED_WORKER = """
import builtins
compile = builtins.compile
def changed(source, *args, **options):
    if isinstance(source, bytes) and {old!r} in source:
        source = source.replace({old!r}, {new!r})
    return compile(source, *args, **options)
builtins.compile = changed
"""
WORKERS = {
    "another call": (b'(("prompt", prompt),)', b'(("prompt", prompt + "."),)',
                     "differs: root.a, turn 2, cell 2: a host call that was not made"),
    "another output": (b"lines = list(report.format())", b"lines = list(report.format_exception_only())",
                       "rlmflow: root.a: cell 1 printed something else than before"),
}


@pytest.mark.replayed("recorded", "their worker is another one than that of the run")
@pytest.mark.parametrize("change", WORKERS)
def test_a_worker_that_was_changed_is_reported_where_it_shows(go, tmp_path, run_rlmflow, change):
    old, new, said = WORKERS[change]
    python, site = tmp_path / "python", tmp_path / "site"
    python.write_text(f"#!/bin/sh\nPYTHONPATH={site} exec /usr/bin/python3 \"$@\"\n")
    python.chmod(0o755)
    run = go(mind({"go": ["print(1)", "done((await launch_subagents([{'query': 'work', 'name': 'a'}]))[0])"],
                   "work": ["1 / 0", "done(await llm_query('q'))"]}), "--python", python)
    assert run.answer == "noted" and run.errors("root.a") == ["exec"], run.stderr
    replay(run_rlmflow, run.path, "--execute")
    site.mkdir()
    (site / "sitecustomize.py").write_text(CHANGED_WORKER.format(old=old, new=new))
    assert said in replay(run_rlmflow, run.path, "--execute", code=1)
    replay(run_rlmflow, run.path)


# How a child's model answers, and where parsers that read it differently show (tests/tools/other_parser.c).
READ_DIFFERENTLY = [Text("One:\n```repl\nx = 1\nprint(x)\n```\nOr:\n```repl\nx = 1\nprint(x + 1)\n```"),
                    Text("So:\n```\nprint('untagged')\n```"), Text("I am thinking."), "done('3')"]
OTHER_PARSERS = {
    "last": "turn 1: the code that was found in a reply\n    x = 1\n  - print(x)\n  + print(x + 1)\n",
    "tagged": "turn 2: the code that was found in a reply\n  - print('untagged')\n",
    "any": "turn 3: the code that was found in a reply\n  + I am thinking.\n",
    "silent": "turn 3: the text of a step\n  - Nothing ran: your reply has no code block.",
}


@pytest.mark.parametrize("flags", [(), ("--execute",)], ids=["record", "execute"])
@pytest.mark.parametrize("parser", OTHER_PARSERS)
def test_a_parser_that_was_changed_is_reported_where_it_shows(go, workspace, build_dir, parser, flags):
    other = copy.copy(workspace)
    other.program = build_dir / "tests" / "tools" / "other_parser"
    run = go(mind({"go": ["print(1)", "done((await launch_subagents([{'query': 'work', 'name': 'a'}]))[0])"],
                   "work": READ_DIFFERENTLY}))
    assert run.answer == "3" and run.errors("root.a") == ["no_code"], run.stderr
    replay(other.run, run.path, *flags)  # it is the same program otherwise
    told = replay(functools.partial(other.run, env={"OTHER_PARSER": parser}), run.path, *flags, code=1)
    assert f"differs: root.a, {OTHER_PARSERS[parser]}" in told, told


# ---- damage ----

def test_a_byte_that_was_flipped_is_reported_and_cut_off(whole, tmp_path, server, run_rlmflow, resumer):
    """By a replay, and by a resume, which refuses it without --cut; then the answer is the same."""
    data = (whole.path / "journal").read_bytes()
    records = Journal(whole.path).records
    step = 17 if TORTURE else 397
    total = len(bought(whole.path))

    def at(position):
        copy = tmp_path / f"flip{position}.rlm"
        shutil.copytree(whole.path, copy)
        flipped = bytearray(data)
        flipped[position] ^= 1 << position % 8
        (copy / "journal").write_bytes(flipped)
        told = run_rlmflow("replay", copy)
        start = max([r.end for r in records if r.end <= position], default=8)
        if position < 8 or start == 8:
            assert told.code == 2, (position, told.stderr)
            return
        assert told.code in (0, 1), (position, told.stderr)
        assert f"the journal is damaged at byte {start}, and read up to there" in told.stderr, position
        if position % (5 * step) and not TORTURE:
            return
        before = len(bought(cut(whole.path, tmp_path / f"before{position}.rlm", start)))
        if start != records[-1].end - (records[-1].end - records[-2].end):  # not the last: no torn tail
            refused, _ = resumer.resume(copy, "--restore", "replay")
            assert refused.code == 2 and f"damaged at byte {start}:" in refused.stderr, refused.stderr
        run, asked = resumer.resume(copy, "--restore", "replay", "--cut")
        if "has ended with an answer" not in run.stderr:
            assert run.answer == ANSWER, (position, run.stderr)
            assert asked == total - before, position

    resumer.each(at, range(3, len(data), step))


@BY_ITSELF
def test_a_journal_of_any_length_is_replayed_up_to_its_end(whole, tmp_path, run_rlmflow, resumer):
    size = (whole.path / "journal").stat().st_size
    ends = {r.end for r in Journal(whole.path).records}

    def at(length):
        copy = cut(whole.path, tmp_path / f"length{length}.rlm", length)
        told = run_rlmflow("replay", copy)
        if length < min(ends):
            assert told.code == 2, (length, told.stderr)
        else:
            assert told.code == 0, (length, told.stderr)
            assert ("the journal is damaged" in told.stderr) == (length not in ends), (length, told.stderr)

    resumer.each(at, sorted({*range(0, size, 5 if TORTURE else 211), *list(ends)[::7]}))
