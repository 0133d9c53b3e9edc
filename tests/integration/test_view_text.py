"""rlmflow view: conversations, differences, and where money went."""

import json
import re
import shutil

import pytest
import records
from replies import FAMILY, cell
from runs import Text, command, go, look, mind  # noqa: F401

STEPS = ["x = 1\nprint('one')", "print('two', x)", "print('three')", "done('four')"]


@pytest.fixture
def family(run_rlmflow, scripted_model, tmp_path):
    path = tmp_path / "family.rlm"
    r = run_rlmflow("run", "go", "--model", scripted_model(FAMILY), "-q", "-o", path)
    assert r.code == 0, r.stderr
    return path


def sent(server, n=-1):
    """[(role, text)] of a request that the server got."""
    return [[m["role"], m["content"]] for m in server.requests[n].body["messages"]]


def conversation(run_rlmflow, run, agent="root"):
    r = run_rlmflow("view", run, "--agent", agent, "--conversation", "--json")
    assert r.code == 0, r.stderr
    return json.loads(r.stdout)


# ---- the conversation ----

@pytest.mark.parametrize("flags", [
    (), ("--max-messages", "4"), ("--max-messages", "6"), ("--max-iters", "4"), ("--max-iters", "3"),
    ("--max-output-length", "100")])
def test_the_conversation_is_what_the_server_got(go, server, run_rlmflow, flags):
    run = go(mind({"go": STEPS}), *flags)
    shown = conversation(run_rlmflow, run.path)
    assert [[m["role"], m["content"]] for m in shown["messages"]] == sent(server)
    assert shown["as_sent"] is True and shown["turn"] == len(run.nodes(type="llm_output"))
    assert shown["reply"] == run.nodes(type="llm_output")[-1]["content"]


def test_the_conversation_of_a_sub_agent_has_its_inputs(go, server, run_rlmflow, tmp_path):
    (tmp_path / "part").write_text("abc" * 50000)
    launch = "await launch_subagents([{'query': 'work', 'name': 'w', 'inputs': {'part': part}}])"
    run = go(mind({"go": launch + "\ndone('x')",
                   "work": "done(INPUTS['part'][:3])"}), "--input", f"part=@{tmp_path}/part")
    shown = conversation(run_rlmflow, run.path, "root.w")
    assert shown["as_sent"] and "150,000 characters" in shown["messages"][1]["content"]
    text = run_rlmflow("view", run.path, "--agent", "root.w", "--conversation").stdout
    assert "as they were sent" in text and text.count("\n[user]\n") == 1 and "[reply]" in text


def test_the_conversation_goes_by_the_limits_of_its_drive(go, server, run_rlmflow):
    run = go(mind({"go": STEPS}), "--max-messages", "4")
    first = sent(server)
    r = run_rlmflow("run", "and more", "--continue", run.path, "--max-messages", "0", "--base-url",
                    server.base_url)
    assert r.code == 0, r.stderr
    shown = conversation(run_rlmflow, run.path)
    assert shown["as_sent"] and [[m["role"], m["content"]] for m in shown["messages"]] == sent(server)
    assert len(shown["messages"]) > len(first)


@pytest.mark.replayed("never", "the records are forged")
def test_what_cannot_be_made_again_is_said(go, run_rlmflow, tmp_path):
    copy = shutil.copytree(go(mind({"go": STEPS})).path, tmp_path / "copy.rlm")
    kept = records.read(copy)
    for kind, members in kept:
        if kind == "node" and members["type"] == "exec_output":
            members["content"] += " changed"
    records.write(copy, kept)
    assert conversation(run_rlmflow, copy)["as_sent"] is False
    text = run_rlmflow("view", copy, "--agent", "root", "--conversation").stdout
    assert "differs" in text and "as they were sent" not in text


def test_a_turn_that_was_rewound_is_in_no_conversation(go, server, run_rlmflow):
    run = go(mind({"go": STEPS}))
    assert run_rlmflow("rewind", f"{run.path}@root:turn2").code == 0
    shown = conversation(run_rlmflow, run.path)
    assert shown["as_sent"] and shown["turn"] == 2
    assert [[m["role"], m["content"]] for m in shown["messages"]] == sent(server, 1)
    assert shown["reply"] == run.nodes(type="llm_output")[1]["content"]
    server.set_rules(mind({"go": [*STEPS[:2], "done('another way')"]}))
    assert run_rlmflow("resume", run.path, "--restore", "replay", "-q").code == 0
    again = conversation(run_rlmflow, run.path)
    assert again["as_sent"] and again["turn"] == 3 and "another way" in again["reply"]
    assert [[m["role"], m["content"]] for m in again["messages"]] == sent(server)
    assert not any("three" in m["content"] for m in again["messages"])


# ---- differences ----

def test_a_run_is_like_itself(run_rlmflow, family, tmp_path):
    copy = shutil.copytree(family, tmp_path / "copy.rlm")
    r = run_rlmflow("view", family, "--diff", copy)
    assert r.code == 0 and r.stdout.endswith("0 agents differ, 3 the same\n")


def test_where_runs_part_is_shown(run_rlmflow, scripted_model, family, tmp_path):
    other = tmp_path / "other.rlm"
    script = [FAMILY[0], ({"agent": "root.a"}, cell('y = 1\ndone("A")')), FAMILY[2]]
    script[0] = (script[0][0], script[0][1].replace('"name": "b"', '"name": "c"'))
    script[2] = ({"agent": "root.c"}, script[2][1])
    r = run_rlmflow("run", "go", "--model", scripted_model(script), "-q", "-o", other)
    assert r.code == 0, r.stderr
    r = run_rlmflow("view", family, "--diff", other)
    assert r.code == 1
    assert re.search(r"^- root\.b  only in the first run  right$", r.stdout, re.M)
    assert re.search(r"^\+ root\.c  only in the second run  right$", r.stdout, re.M)
    assert "root.a  parts at node #1, after 0 turns" in r.stdout
    assert re.search(r'^      ```repl\n    \+ y = 1\n      done\("A"\)$', r.stdout, re.M), r.stdout
    assert r.stdout.endswith("4 agents differ, 0 the same\n")


def test_a_run_that_went_on_is_seen(run_rlmflow, family, tmp_path):
    copy = shutil.copytree(family, tmp_path / "copy.rlm")
    kept = records.read(copy)
    last = max(i for i, (k, m) in enumerate(kept) if k == "node" and m["agent"] == "root")
    records.write(copy, kept[:last])
    r = run_rlmflow("view", family, "--diff", copy)
    assert r.code == 1 and "root  the first run goes on after node #" in r.stdout
    assert "1 agent differs, 2 the same" in r.stdout
    r = run_rlmflow("view", family, "--diff", tmp_path / "none.rlm")
    assert r.code == 2 and "none.rlm" in r.stderr


# ---- usage, resumed runs ----

def test_what_was_spent_outside_turns_has_a_line(go, run_rlmflow):
    run = go(mind({"go": "print(await llm_query_batched(['a', 'b']))\ndone('x')"}))
    text = run_rlmflow("view", run.path, "--usage").stdout
    assert re.search(r"^ +3 .* all agents$", text, re.M) and re.search(r"^ +1 .* root  turn 1 ", text, re.M)
    assert re.search(r"^ +2 .* root  llm_query, and calls that failed or were lost$", text, re.M)


def test_the_usage_of_a_resumed_run_adds_up(go, server, run_rlmflow):
    run = go(mind({"go": STEPS}))
    kept = records.read(run.path)
    reply = [i for i, (k, m) in enumerate(kept) if k == "node" and m["type"] == "llm_output"][1]
    records.write(run.path, kept[:reply])  # stopped while the second reply was on its way
    r = run_rlmflow("resume", run.path, "--base-url", server.base_url)
    assert r.code == 0, r.stderr
    lines = run_rlmflow("view", run.path, "--usage").stdout.splitlines()
    calls = [int(line.split()[0]) for line in lines if re.search(r"root  (turn|llm_query)", line)]
    total = next(int(line.split()[0]) for line in lines if "all agents" in line)
    assert sum(calls) == total == 5
    assert any("lost  (estimate)" in line for line in lines)


def test_views_that_do_not_go_together_are_refused(run_rlmflow, family):
    for flags in (["--conversation"], ["--usage", "--timeline"], ["--html", "x", "--agent", "root"],
                  ["--diff", family, "--json"], ["--usage", "--json"], ["--node", "n", "--usage"]):
        r = run_rlmflow("view", family, *flags)
        assert r.code == 2 and "--" in r.stderr and r.stdout == "", flags
