"""rlmflow view: finished, living, truncated, damaged and newer runs."""

import json
import re
import shutil

import pytest
from journal import Journal
from replies import FAMILY, cell, says
from runs import command, go, look, mind  # noqa: F401


@pytest.fixture
def family(run_rlmflow, scripted_model, tmp_path):
    """The path of a finished run with two sub-agents."""
    path = tmp_path / "family.rlm"
    r = run_rlmflow("run", "go", "--model", scripted_model(FAMILY), "-q", "-o", path)
    assert r.code == 0, r.stderr
    return path


def test_the_tree_has_each_agent_with_its_state_and_the_answer(run_rlmflow, family):
    r = run_rlmflow("view", family)
    lines = r.stdout.splitlines()
    assert (r.code, r.stderr) == (0, "")
    assert re.match(r"root  answered  1 turn  .* in, .* out  go$", lines[0])
    assert lines[1].startswith("├─ a  answered") and lines[2].startswith("└─ b  answered")
    assert lines[-1] == "A+B"


def test_an_agent_and_a_node_can_be_seen(run_rlmflow, family):
    r = run_rlmflow("view", family, "--agent", "root.a")
    assert r.code == 0 and "#0 user_query" in r.stdout and "#3 done_output" in r.stdout
    node = re.search(r"#2 exec_action  (n_[0-9a-f]{16})", r.stdout).group(1)
    r = run_rlmflow("view", family, "--node", node)
    assert r.code == 0 and 'done("A")' in r.stdout and "root.a" in r.stdout
    r = run_rlmflow("view", family, "--node", node, "--json")
    assert json.loads(r.stdout)["code"].strip() == 'done("A")'
    assert all(run_rlmflow("view", family, *place, "--json").stdout == r.stdout for place in (
        ["--node", "root.a:2"], ["--agent", "a", "--node", "2"], ["--agent", "a", "--node", node]))
    assert "root #1 llm_output" in run_rlmflow("view", family, "--node", "1").stdout
    r = run_rlmflow("view", family, "--agent", "root.a", "--json")
    assert {json.loads(line)["agent_id"] for line in r.stdout.splitlines()} == {"root.a"}


def test_an_agent_is_found_by_its_last_part_if_that_is_unique(run_rlmflow, scripted_model, tmp_path):
    launch = cell('r = await launch_subagents([{"query": "x", "name": "low"}])\ndone(r[0])')
    model = scripted_model([
        ({"agent": "root", "turn": 1}, cell(
            'await launch_subagents([{"query": "x", "name": "a"}, {"query": "x", "name": "b"}])\ndone("top")')),
        ({"agent": "root.a"}, launch), ({"agent": "root.b"}, launch), ({}, cell('done("deep")'))])
    path = tmp_path / "deep.rlm"
    assert run_rlmflow("run", "go", "--model", model, "-o", path).code == 0
    assert run_rlmflow("view", path, "--agent", "b").stdout == run_rlmflow("view", path, "--agent", "root.b").stdout
    assert run_rlmflow("view", path, "--agent", "root.b.low").code == 0
    for name in ("low", "b.low", "oot"):  # two end in "low"
        r = run_rlmflow("view", path, "--agent", name)
        assert (r.code, r.stdout) == (2, "") and f'"{name}"' in r.stderr


def test_what_was_printed_is_shown_once_and_no_line_ends_with_blanks(run_rlmflow, scripted_model, tmp_path):
    path = tmp_path / "printed.rlm"
    model = scripted_model([({"turn": 1}, cell("print('seen')")), ({}, cell("done('x')"))])
    assert run_rlmflow("run", "go", "--model", model, "-q", "-o", path).code == 0
    shown = run_rlmflow("view", path, "--agent", "root").stdout
    assert shown.count("\n  seen\n") == 1 and "output:" not in shown
    assert "output:" not in run_rlmflow("view", path, "--node", "3").stdout
    for flags in ([], ["--agent", "root"], ["--timeline"], ["--usage"]):
        assert not re.search(r" $", run_rlmflow("view", path, *flags).stdout, re.M), flags


def test_usage_is_listed_by_agent_and_turn(run_rlmflow, family):
    r = run_rlmflow("view", family, "--usage")
    assert r.code == 0 and re.search(r"^ +3 .*all agents$", r.stdout, re.M)
    assert len(re.findall(r"root\.[ab]  turn 1", r.stdout)) == 2
    assert run_rlmflow("view", family, "--usage", "--json").code == 2


def spent_by(journal):
    """{agent: {turn: usage}}; turn None: what it spent outside its turns."""
    spent = {}
    for r in journal.records:
        turns = spent.setdefault(r.get("agent"), {})
        if r.kind == "node" and r["type"] == "llm_output":
            turns[len([t for t in turns if t]) + 1] = r["usage"]
        elif r.kind == "settle":
            turns[None] = r.get("usage", r.members)
    return {agent: turns for agent, turns in spent.items() if turns}


def amounts(usages):
    """The columns of a row."""
    sums = [sum(u.get(k, 0) for u in usages)
            for k in ("input_tokens", "cached_tokens", "output_tokens", "cost_nano")]
    return (str(len(usages)), *map(str, sums[:3]), f"${sums[3] / 1e9:.4f}")


def test_usage_has_the_amounts_of_the_record(go, run_rlmflow):
    run = go(mind({"go": ["r = await launch_subagents([{'query': 'work', 'name': 'w'}])\n"
                          "x = await llm_query('many words ' * 900)", "done(r[0])"],
                   "work": ["print('y' * 300)", "done('A')"]}), "--price", "3/20")
    spent = spent_by(Journal(run.path))
    assert {agent: set(turns) for agent, turns in spent.items()} == {"root": {1, 2, None}, "root.w": {1, 2}}
    shown = run_rlmflow("view", run.path, "--usage").stdout
    rows = re.findall(r"^ *(\d+) +(\d+) +(\d+) +(\d+) +(\$[\d.]+) +(.+)$", shown, re.M)
    named = {row[5].split("  n_")[0]: row[:5] for row in rows}
    expected = {"all agents": amounts([u for turns in spent.values() for u in turns.values()])}
    for agent, turns in spent.items():
        expected[agent] = amounts(list(turns.values()))
        for turn, usage in turns.items():
            rest = f"turn {turn}" if turn else "llm_query, and calls that failed or were lost"
            expected[f"{agent}  {rest}"] = amounts([usage])
    assert named == expected and len(rows) == len(expected) == 8
    assert all(int(row[1]) > 0 and int(row[3]) > 0 for row in rows)
    usage = run.usage
    assert expected["all agents"][:2] == (str(usage["calls"]), str(usage["input_tokens"]))
    assert expected["all agents"][3:] == (str(usage["output_tokens"]), f"${usage['cost']:.4f}")
    # The dearest stand first, in each of the two lists.
    costs = [float(row[4][1:]) for row in rows]
    assert costs[1:3] == sorted(costs[1:3], reverse=True) and costs[3:] == sorted(costs[3:], reverse=True)


def test_what_is_not_there_is_said(run_rlmflow, family, tmp_path):
    for flags, text in ((["--agent", "root.zz"], "root.zz"), (["--node", "n_0"], "n_0")):
        r = run_rlmflow("view", family, *flags)
        assert r.code == 2 and text in r.stderr
    assert run_rlmflow("view", tmp_path / "nothing").code == 2
    (tmp_path / "file").write_text("no run")
    (tmp_path / "empty").mkdir()
    for name in ("file", "empty"):
        r = run_rlmflow("view", tmp_path / name)
        assert r.code in (1, 2) and name in r.stderr and r.stdout == ""


def test_a_truncated_run_is_shown_up_to_its_end(run_rlmflow, family):
    journal = family / "journal"
    whole = journal.read_bytes()
    unfinished = 0
    for keep in range(len(whole) - 1, 64, -len(whole) // 12):
        journal.write_bytes(whole[:keep])
        r = run_rlmflow("view", family)
        assert r.code in (0, 1, 2), r.stderr
        assert r.stderr or r.code == 0
        unfinished += "unfinished" in r.stdout
    assert unfinished


def test_a_damaged_run_is_shown_up_to_the_damage(run_rlmflow, family):
    journal = family / "journal"
    data = bytearray(journal.read_bytes())
    data[len(data) * 2 // 3] ^= 0x55
    journal.write_bytes(data)
    r = run_rlmflow("view", family)
    assert r.code == 0 and "root" in r.stdout and "note: " in r.stderr


@pytest.mark.replayed("never", "a blob is taken away")
def test_a_missing_blob_is_noted(run_rlmflow, scripted_model, tmp_path):
    path = tmp_path / "run.rlm"
    r = run_rlmflow("run", "go", "--model", scripted_model(says("print('z' * 200000); done('w' * 100000)")),
                    "-q", "-o", path, "--max-iters", "3")
    assert r.code == 0 and len(r.stdout) == 100001
    shutil.rmtree(path / "blobs")
    r = run_rlmflow("view", path)
    assert r.code == 0 and "root" in r.stdout and "note: " in r.stderr


def test_a_run_of_a_newer_version_is_refused_clearly(run_rlmflow, family):
    journal = family / "journal"
    data = bytearray(journal.read_bytes())
    place = data.index(b'"format"')
    assert re.match(rb'"format": ?\d', data[place:])
    newer = bytearray(data)
    # The header that names the format comes first; it is what a newer version changes.
    header = data[:16]
    found = False
    for i in range(len(header)):
        newer = bytearray(data)
        newer[i] = (newer[i] + 1) & 0xFF
        journal.write_bytes(newer)
        r = run_rlmflow("view", family)
        assert r.code in (0, 1, 2)
        found |= r.code != 0 and "newer" in r.stderr
    assert found


def test_a_living_run_can_be_viewed(run_rlmflow, start_rlmflow, scripted_model, tmp_path):
    path = tmp_path / "run.rlm"
    gate = tmp_path / "gate"
    code = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\ndone('late')"
    process = start_rlmflow("run", "go", "--model", scripted_model(says(code)), "--json", "-o", path)
    while b'"exec_action"' not in process.stdout.readline():
        pass
    r = run_rlmflow("view", path, "--agent", "root")
    assert r.code == 0 and "unfinished" in r.stdout and "exec_action" in r.stdout
    assert run_rlmflow("view", path).stderr == "the run is going on\n"
    result = json.loads(run_rlmflow("view", path, "--json").stdout.splitlines()[-1])
    assert result["answer"] is None and result["reason"] is None
    gate.write_text("")
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert "root  answered" in run_rlmflow("view", path).stdout


def test_colour_only_on_a_terminal(run_rlmflow, family):
    assert "\x1b" not in run_rlmflow("view", family).stdout
