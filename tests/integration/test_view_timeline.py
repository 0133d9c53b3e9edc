"""rlmflow view --timeline: when each agent waited for its model, ran code, waited for tools, for others and for
approvals, as text and as JSON; what was stopped, and what was taken back."""

import json
import re

import pytest
import records
from journal import Journal
from pages import family, write_page  # noqa: F401
from replies import cell
from runs import command, go, look, mind  # noqa: F401

STEPS = ["x = 1\nprint('one')", "print('two', x)", "print('three')", "done('four')"]
FLOW = ("resumed", "session_opened", "cell_started", "call_started", "call_finished", "call_delivered",
        "reserve", "settle", "gate", "session_ended", "run_ended", "blob")
S = 10**6
pytestmark = pytest.mark.replayed("never", "what was changed by hand is not what happened")


def timed(run, times):
    """As if the run had begun a thousand seconds ago, and its nodes, in order, had come these times in
    seconds after."""
    kept = records.read(run)
    for _, members in kept:
        if "t" in members:
            members["t"] -= 1000 * S
    start = next(m["t"] for k, m in kept if k == "run")
    nodes = [m for k, m in kept if k == "node"]
    assert len(nodes) == len(times), [(n["agent"], n["type"]) for n in nodes]
    for node, at in zip(nodes, times):
        node["t"] = start + int(at * S)
    return start, kept


def one_turn(run_rlmflow, scripted_model, tmp_path):
    path = tmp_path / "one.rlm"
    r = run_rlmflow("run", "go", "--model", scripted_model([({}, cell("done('x')"))]), "-q", "-o", path)
    assert r.code == 0, r.stderr
    return path


def test_a_timeline_has_bars_and_sums(run_rlmflow, scripted_model, tmp_path):
    path = one_turn(run_rlmflow, scripted_model, tmp_path)
    records.write(path, timed(path, [0, 6, 8, 12])[1])
    lines = run_rlmflow("view", path, "--timeline").stdout.splitlines()
    assert lines[0].endswith("12.0 s in all")
    bar = re.search("▒+·+█+", lines[2])[0]
    assert abs(bar.count("▒") / len(bar) - 0.5) < 0.04 and abs(bar.count("█") / len(bar) - 1 / 3) < 0.04
    assert lines[2].startswith("root ") and re.search(r"6\.0 s +4\.0 s +2\.0 s", lines[2])
    steps = run_rlmflow("view", path, "--timeline", "--agent", "root").stdout.splitlines()[2:]
    assert len(steps) == 3 and steps[0].startswith("turn 1    model") and "6.0 s" in steps[0]
    assert steps[1].startswith("turn 1    waiting") and "2.0 s" in steps[1]  # for the session
    assert steps[2].startswith("turn 1    code") and "4.0 s" in steps[2]


def test_a_stop_is_left_out_of_the_timeline(run_rlmflow, scripted_model, tmp_path):
    path = one_turn(run_rlmflow, scripted_model, tmp_path)
    start, kept = timed(path, [0, 1, 1, 86401])
    action = max(i for i, (k, m) in enumerate(kept) if k == "node" and m["type"] == "exec_action")
    options = next(m["options"] for k, m in kept if k == "run")
    kept.insert(action + 1, ("resumed", {"version": "0", "t": start + 86400 * 10**6, "elapsed_ms": 1000,
                                         "options": options}))
    records.write(path, kept)
    text = run_rlmflow("view", path, "--timeline").stdout
    assert "2.0 s in all" in text and "last step at 1.0 s, resumed 23h 59m later" in text
    assert re.search(r"1\.0 s +1\.0 s", text)
    shown = run_rlmflow("view", path, "--agent", "root").stdout
    assert shown.count("-- the run was stopped, and went on") == 1
    assert shown.index("-- the run") > shown.index("exec_action")


def test_the_widest_timeline_fits_the_line(run_rlmflow, family):
    lines = run_rlmflow("view", family, "--timeline").stdout.splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["root", "a", "b"]
    assert all(len(line) <= 110 for line in lines)


def test_approvals_are_seen(run_rlmflow, scripted_model, tmp_path):
    path = one_turn(run_rlmflow, scripted_model, tmp_path)
    start, kept = timed(path, [0, 1, 5, 6])
    reply = next(i for i, (k, m) in enumerate(kept) if k == "node" and m["type"] == "llm_output")
    question = {"agent": "root", "gate": "exec_turn", "node": kept[reply][1]["id"],
                "asked": {"t": start + 10**6, "shown": "done('x')"}}
    waits = kept[:reply + 1] + [("gate", question)]
    records.write(path, waits)
    assert "approval: the code waits for an answer" in run_rlmflow("view", path, "--agent", "root").stdout
    answer = {"t": start + 5 * 10**6, "who": "ada\x1b[31m", "decision": "rewrite", "text": "done('y')"}
    records.write(path, waits + [("gate", {**question, "answer": answer})] + kept[reply + 1:])
    shown = run_rlmflow("view", path, "--agent", "root").stdout
    assert "approval: the code was rewritten by ada, 4.0 s after it was asked" in shown
    assert shown.count("approval:") == 1
    assert re.search(r"\?\?\?.* 1\.0 s +1\.0 s +4\.0 s", run_rlmflow("view", path, "--timeline").stdout)


# ---- calls ----

def spans(run_rlmflow, run, agent="root"):
    """[[kind, from, to]] of an agent, in seconds."""
    r = run_rlmflow("view", run, "--timeline", "--json", "--agent", agent)
    assert r.code == 0, r.stderr
    (one,) = json.loads(r.stdout)["agents"]
    assert one["agent_id"] == agent
    return [[s["kind"], s["from_us"] / S, s["to_us"] / S] for s in one["spans"]]


@pytest.fixture
def calls(go):
    """A run of one cell that asks twice; its records, with times in seconds: the reply came at 1, calls
    were under way from 2 to 5 and from 4 to 6, and the end came at 8."""
    both = "import asyncio\nprint(await asyncio.gather(llm_query('a'), llm_query('b')))\ndone('x')"
    run = go(mind({"go": both}))
    start, kept = timed(run.path, [0, 1, 1, 8])
    times = {"call_started": [2, 4, 7, 7], "call_finished": [5, 6, 7, 7]}
    for kind, members in kept:
        if kind in FLOW:
            members["t"] = start + (times[kind].pop(0) if kind in times else 1) * S
    return run.path, kept


def test_all_records_of_the_flow_have_times_in_order(go):
    run = go(mind({"go": "print(await llm_query('a'))\ndone('x')"}))
    kept = [r for r in Journal(run.path).records if r.kind in FLOW or r.kind in ("run", "node")]
    assert {"reserve", "settle", "call_started", "call_finished", "call_delivered"} <= {r.kind for r in kept}
    times = [r["t"] for r in kept]
    assert times == sorted(times) and times[-1] - times[0] < 600 * S


def test_an_llm_query_is_time_of_the_model(calls, run_rlmflow, tmp_path):
    path, kept = calls
    records.write(path, kept)
    assert spans(run_rlmflow, path) == [["model", 0, 1], ["code", 1, 2], ["model", 2, 6], ["code", 6, 8]]
    assert re.search(r"root .* 5\.0 s +3\.0 s", run_rlmflow("view", path, "--timeline").stdout)
    steps = run_rlmflow("view", path, "--timeline", "--agent", "root").stdout.splitlines()[2:]
    assert [line.split()[2] for line in steps] == ["model", "code", "model", "code"]
    page = write_page(run_rlmflow, path, tmp_path / "page.html")
    data = json.loads(re.search(r'id="run">(.*?)</script>', page, re.S)[1])
    shown = [[data["kinds"][kind], a, b] for kind, a, b in data["agents"][0]["spans"]]
    assert shown == [["model", 0, 1000], ["code", 1000, 2000], ["model", 2000, 6000], ["code", 6000, 8000]]


def test_tools_stand_apart_and_the_model_comes_first(calls, run_rlmflow):
    path, kept = calls
    next(m for k, m in kept if k == "call_started")["name"] = "lookup"
    records.write(path, kept)
    assert spans(run_rlmflow, path) == [["model", 0, 1], ["code", 1, 2], ["tools", 2, 4], ["model", 4, 6],
                                        ["code", 6, 8]]
    text = run_rlmflow("view", path, "--timeline").stdout
    assert "tools" in text.splitlines()[0] and re.search(r"root .* 3\.0 s +3\.0 s +2\.0 s", text)


def test_an_approval_of_a_call_is_no_time_of_the_call(calls, run_rlmflow):
    path, kept = calls
    at = next(i for i, (k, m) in enumerate(kept) if k == "call_started")
    question = {"agent": "root", "gate": "host_call", "cell": 1, "call": kept[at][1]["call"], "still_ms": 0,
                "asked": {"t": kept[at][1]["t"]}}
    answer = {"t": kept[at][1]["t"] + S, "who": "ada", "decision": "allow"}
    kept[at + 1:at + 1] = [("gate", question), ("gate", {**question, "answer": answer})]
    records.write(path, kept)
    assert spans(run_rlmflow, path)[1:4] == [["code", 1, 2], ["approval", 2, 3], ["model", 3, 6]]


def test_calls_without_times_are_time_of_the_code(calls, run_rlmflow):
    path, kept = calls
    for kind, members in kept:
        if kind in FLOW:
            del members["t"]
    records.write(path, kept)
    assert spans(run_rlmflow, path) == [["model", 0, 1], ["code", 1, 8]]


def test_a_killed_run_shows_what_was_under_way(calls, run_rlmflow):
    path, kept = calls
    last = max(i for i, (k, m) in enumerate(kept) if k == "call_finished" and m["call"] == 1)
    records.write(path, kept[:last + 1])
    assert spans(run_rlmflow, path) == [["model", 0, 1], ["code", 1, 2], ["model", 2, 5]]
    steps = run_rlmflow("view", path, "--timeline", "--agent", "root").stdout
    assert steps.count("not ended") == 2 and "5.0 s in all" in steps


def test_a_task_put_behind_a_run_is_no_time_of_the_run(calls, run_rlmflow, server):
    """The run began a thousand seconds ago and took eight."""
    path, kept = calls
    start = next(m["t"] for k, m in kept if k == "run")
    records.write(path, kept)
    new = path.with_name("from.rlm")
    r = run_rlmflow("run", "--from", f"{path}@root:1", "and more", "-o", new, "-q", "--max-time", "500s")
    assert r.code == 0, r.stderr
    resumed = Journal(new).one("resumed")
    assert resumed["elapsed_ms"] < 8000
    (stop,) = json.loads(run_rlmflow("view", new, "--timeline", "--json").stdout)["stops"]
    assert stop["left_out_us"] == resumed["t"] - start - stop["at_us"] > 900 * S


# ---- rewinds ----

def test_what_was_rewound_is_marked(go, run_rlmflow, server):
    run = go(mind({"go": STEPS}))
    #          query, then reply, action and output of each turn
    start, kept = timed(run.path, [0, 1, 1, 2, 4, 4, 5, 8, 8, 9, 10, 10, 12])
    for kind, members in kept:
        if kind in FLOW:
            del members["t"]
    reserve = [m for k, m in kept if k == "reserve"][2]
    reserve["t"] = start + 5 * S
    records.write(run.path, kept)
    assert run_rlmflow("rewind", f"{run.path}@root:turn2").code == 0
    first = [["model", 0, 1], ["code", 1, 2], ["model", 2, 4], ["code", 4, 5]]
    assert spans(run_rlmflow, run.path) == [*first, ["rewound", 5, 12]]
    assert re.search(r"root .*×+ .* 7\.0 s", run_rlmflow("view", run.path, "--timeline").stdout)
    r = run_rlmflow("resume", run.path, "--restore", "replay", "-q")
    assert r.code == 0, r.stderr
    after = spans(run_rlmflow, run.path)
    assert after[:5] == [*first, ["rewound", 5, 12]] and after[5][:2] == ["model", 12]
    assert "rewound" not in [kind for kind, _, _ in after[5:]]


def test_agents_that_were_rewound_have_no_row_and_their_parent_is_marked(family, run_rlmflow):
    assert run_rlmflow("rewind", f"{family}@root:0").code == 0
    shown = json.loads(run_rlmflow("view", family, "--timeline", "--json").stdout)
    assert [a["agent_id"] for a in shown["agents"]] == ["root"]
    assert [s["kind"] for s in shown["agents"][0]["spans"]] in (["rewound"], ["model", "rewound"])


def test_a_question_after_a_rewind_stands_at_the_node_that_stayed(go, run_rlmflow):
    run = go(mind({"go": STEPS}))
    records.write(run.path, records.read(run.path))  # so that what stands before an addition stays as it is
    place = run.nodes(type="llm_output")[1]
    assert run_rlmflow("rewind", f"{run.path}@{place['id']}").code == 0
    kept = records.read(run.path)
    kept.append(("gate", {"agent": "root", "gate": "exec_turn", "node": place["id"], "still_ms": 0,
                          "asked": {"t": kept[0][1]["t"] + S, "shown": "code"}}))
    records.write(run.path, kept)
    text = run_rlmflow("view", run.path, "--agent", "root").stdout
    assert "approval: the code waits for an answer" in text
    assert text.index(place["id"]) < text.index("approval:")
