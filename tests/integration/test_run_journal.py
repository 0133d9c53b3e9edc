"""What the journal of a run says, record by record, and in which order: restore lives on it."""

import hashlib
import json
import re

import pytest
from journal import Journal, blob_ids
from runs import command, go, look, mind  # noqa: F401

LOOK = "import random\nprint(random.random())\nprint(d['a.txt'])"
WORK = """
import asyncio
try:
    await llm_query("to nobody", model="nobody")
except ValueError as e:
    print(e)
await asyncio.gather(*(llm_query(f"all {i}", model="nobody") for i in range(4)), return_exceptions=True)
r = await launch_subagents([
    {"query": "read it", "name": "a", "inputs": {"t": big}},
    {"query": "read it", "name": "b", "inputs": {"t": big[1:]}}])
slow = asyncio.create_task(llm_query("slow", model="default"))
quick = asyncio.create_task(llm_query("quick"))
print(r, await quick, await slow)
"""
DIE = "import os; os._exit(3)"
ANSWER = "x = await llm_query(big)\ndone([x[:3], await llm_query_batched(['one', 'two'])])"
BIG = "word " * 20_000


def query(request):
    if len(request.user) > 1000:
        return "z" * 70_000
    if request.user == "slow":
        return {"reply": "late", "first_byte_delay_ms": 300}
    return "re: " + request.user


@pytest.fixture(scope="module")
def kept():
    """The Run and the Journal of one recursive run with everything in it, made once: no test changes
    them."""
    return {}


@pytest.fixture
def run_and_journal(kept, go, tmp_path):
    if not kept:
        (tmp_path / "big").write_text(BIG)
        folder = tmp_path / "folder"
        folder.mkdir()
        (folder / "a.txt").write_text("content of a")
        busy = {"match": {"user": "^one$"}, "times": 1, "status": 503, "retry_after_ms": 10}
        run = go([busy, *mind({"go": [LOOK, WORK, DIE, ANSWER], "read": "done(len(t))"}, query=query)],
                 "--input", f"big=@{tmp_path / 'big'}", "--input", f"d=@{folder}",
                 "--max-budget", "1M")
        assert run.code == 0, run.stderr
        assert run.answer == repr(["zzz", ["re: one", "re: two"]])
        kept["run"], kept["journal"] = run, Journal(run.path)
    return kept["run"], kept["journal"]


@pytest.fixture
def journal(run_and_journal):
    return run_and_journal[1]


def test_the_reader_knows_a_bad_byte(journal, tmp_path):
    """Else it would prove nothing."""
    data = bytearray((journal.blobs.parent / "journal").read_bytes())
    data[-3] ^= 1
    (tmp_path / "journal").write_bytes(data)
    with pytest.raises(AssertionError, match="checksum"):
        Journal(tmp_path)


def test_it_begins_with_what_was_asked_and_ends_with_how_it_ended(journal):
    first, last = journal.records[0], journal.records[-1]
    assert first.kind == "run" and last.kind == "run_ended"
    assert (first["format"], first["agent"], first["query"]) == (1, "root", "go")
    assert re.fullmatch("g_[0-9a-f]{32}", first["graph_id"])
    assert first["inputs"]["big"] == {"$blob": hashlib.sha256(BIG.encode()).hexdigest()}
    assert first["options"]["limits"]["max_budget"] == 1_000_000
    assert first["options"]["models"]["default"]["name"] == "m"
    assert first["options"]["runtime"] == "subprocess"
    assert last["reason"] == "answered" and not last["message"]
    assert len(journal.all("run")) == len(journal.all("run_ended")) == 1


def test_a_session_is_recorded_with_what_restore_needs(journal):
    opened = journal.all("session_opened")
    assert [(r["agent"], r["session"]) for r in opened if r["agent"] == "root"] == [("root", 1), ("root", 2)]
    assert sorted(r["agent"] for r in opened) == ["root", "root", "root.a", "root.b"]
    for r in opened:
        assert re.fullmatch("[0-9a-f]{16}", r["seed"])
        assert r["effects"] == "outside"
        assert re.match(r"3\.\d+\.\d+", r["ready"]["python"]), r
    seeds = {(r["agent"], r["seed"]) for r in opened}
    assert len(seeds) == 3 and len({seed for _, seed in seeds}) == 3  # an agent's is always the same


def test_the_death_of_a_worker_ends_its_session(journal):
    ended = journal.one("session_ended", reason="exit")
    assert ended["agent"] == "root" and ended["session"] == 1
    assert "exit status 3" in ended["message"]
    cell = journal.one("cell_started", agent="root", cell=3)
    told = journal.one("node", agent="root", type="error_output")
    again = journal.one("session_opened", agent="root", session=2)
    assert cell.position < ended.position < told.position < again.position


def test_code_is_recorded_as_it_is_run_and_before_it_runs(journal):
    cells = journal.all("cell_started", agent="root")
    assert [(r["session"], r["cell"], journal.text(r["code"]).strip()) for r in cells] == [
        (1, 1, LOOK), (1, 2, WORK.strip()), (1, 3, DIE), (2, 4, ANSWER)]
    for agent in ("root", "root.a", "root.b"):
        actions = journal.all("node", agent=agent, type="exec_action")
        cells = journal.all("cell_started", agent=agent)
        replies = journal.all("node", agent=agent, type="llm_output")
        assert len(actions) == len(cells) == len(replies)
        for reply, action, cell in zip(replies, actions, cells):
            assert reply.position < action.position < cell.position
            assert reply["code"] == action["code"] == cell["code"]
            opened = journal.one("session_opened", agent=agent, session=cell["session"])
            assert opened.position < cell.position


def test_a_call_is_started_then_finished_then_delivered(journal):
    calls = journal.all("call_started")
    assert {r["name"] for r in calls} >= {"launch_subagents", "llm_query", "llm_query_batched", "done"}
    for call in calls:
        where = {"agent": call["agent"], "cell": call["cell"]}
        cell = journal.one("cell_started", **where)
        finished = journal.one("call_finished", call=call["call"], **where)
        delivered, = [r for r in journal.all("call_delivered", **where) if call["call"] in r["calls"]]
        assert cell.position < call.position < finished.position < delivered.position
        assert ("value" in finished.members or "value_text" in finished.members) != (
            "error" in finished.members)
    assert len(journal.all("call_finished")) == len(calls)
    assert sum(len(r["calls"]) for r in journal.all("call_delivered")) == len(calls)


def test_a_call_is_recorded_with_its_arguments_and_a_key_made_of_them(journal):
    for call in journal.all("call_started"):
        canonical = json.dumps([call["name"], call["args"], call["kwargs"]], sort_keys=True,
                               ensure_ascii=False, separators=(",", ":"))
        assert call["key"] == hashlib.sha256(canonical.encode()).hexdigest(), canonical
    launch = journal.one("call_started", name="launch_subagents")
    specs, = launch["args"]
    assert [s["name"] for s in specs] == ["a", "b"]
    assert specs[0]["inputs"]["t"] == {"$blob": hashlib.sha256(BIG.encode()).hexdigest()}
    assert specs[1]["inputs"]["t"] == {"$blob": hashlib.sha256(BIG[1:].encode()).hexdigest()}
    slow = journal.one("call_started", name="llm_query", args=["slow"])
    assert slow["kwargs"] == {"model": "default"}


def result_of(journal, call):
    return journal.one("call_finished", agent=call["agent"], cell=call["cell"], call=call["call"])


def test_the_results_of_calls_are_recorded(journal):
    launch = journal.one("call_started", name="launch_subagents")
    assert result_of(journal, launch)["value"] == ["100000", "99999"]
    assert result_of(journal, journal.one("call_started", name="llm_query_batched"))["value"] == [
        "re: one", "re: two"]
    long = journal.one("call_started", agent="root", cell=4, name="llm_query")
    value = journal.text(result_of(journal, long).get("value", result_of(journal, long).get("value_text")))
    assert value.strip('"').startswith("zzz")
    wrong = result_of(journal, journal.one("call_started", args=["to nobody"]))["error"]
    assert wrong["type"] == "ValueError"
    assert 'no model is named "nobody"' in wrong["message"]


def test_deliveries_stand_in_the_order_of_the_answers_not_of_the_calls(journal):
    slow = journal.one("call_started", name="llm_query", args=["slow"])
    quick = journal.one("call_started", name="llm_query", args=["quick"])
    assert slow.position < quick.position
    assert result_of(journal, quick).position < result_of(journal, slow).position
    order = [c for r in journal.all("call_delivered", agent="root", cell=2) for c in r["calls"]]
    assert order.index(quick["call"]) < order.index(slow["call"])


def test_results_that_are_delivered_together_are_named_one_by_one(journal):
    where = {"agent": "root", "cell": 2}
    refused = [r["call"] for r in journal.all("call_started", **where) if "all " in str(r["args"])]
    delivered = [r["calls"] for r in journal.all("call_delivered", **where) if refused[0] in r["calls"]]
    assert delivered == [refused] and len(refused) == 4


def test_children_and_their_launch_stand_in_order(journal):
    launch = journal.one("call_started", name="launch_subagents")
    children = journal.all("child")
    assert [(r["parent"], r["name"], r["query"]) for r in children] == [
        ("root", "a", "read it"), ("root", "b", "read it")]
    assert children[1]["inputs"] == {"t": {"$blob": hashlib.sha256(BIG[1:].encode()).hexdigest()}}
    waits = journal.one("node", agent="root", type="supervising_output")
    resumes = journal.one("node", agent="root", type="resume_action")
    assert waits["call_id"] == resumes["call_id"] == launch["call"]
    assert waits["agents"] == resumes["agents"] == ["root.a", "root.b"]
    assert launch.position < children[0].position < children[1].position < waits.position
    for child in ("root.a", "root.b"):
        first = journal.one("node", agent=child, type="user_query")
        done = journal.one("node", agent=child, type="done_output")
        assert children[1].position < first.position < done.position < resumes.position
        assert (done["reason"], done["result"]) == ("answered", "100000" if child == "root.a" else "99999")
    assert resumes.position < result_of(journal, launch).position


def closing(journal, reserve, taken):
    """The record that settles a reservation: a settle of its ask, or the reply that tells its usage
    itself."""
    for r in journal.records[reserve.position + 1:]:
        if r.position in taken or r.get("agent") != reserve["agent"]:
            continue
        if r.kind == "settle" and r["ask"] == reserve["ask"]:
            return r
        if r.kind == "node" and r["type"] == "llm_output" and r.get("ask", reserve["ask"]) == reserve["ask"]:
            return r
    return None


def test_every_model_call_is_reserved_before_and_settled_after(run_and_journal):
    run, journal = run_and_journal
    reserves, settles = journal.all("reserve"), journal.all("settle")
    replies = journal.all("node", type="llm_output")
    assert len(reserves) == run.usage["calls"] == 12  # 4 + 2 turns, 5 queries, 1 of them asked twice
    taken = set()
    for reserve in reserves:
        assert reserve["input_tokens"] > 0 and reserve["output_tokens"] > 0, reserve
        assert reserve["model"] == "default"
        end = closing(journal, reserve, taken)
        assert end, f"{reserve} is never settled"
        taken.add(end.position)
        usage = end.get("usage", end.members)
        assert usage["calls"] == 1
        assert usage["input_tokens"] <= reserve["input_tokens"]
        assert usage["output_tokens"] <= reserve["output_tokens"]
    assert {r.position for r in settles} <= taken, "a settle without a reserve"
    for name in ("calls", "input_tokens", "output_tokens"):
        total = sum(r[name] for r in settles if not r.get("node")) + sum(r["usage"][name] for r in replies)
        assert total == run.usage[name], name


def test_a_refused_attempt_is_settled_with_nothing(journal):
    batched = journal.one("call_started", name="llm_query_batched")
    finished = result_of(journal, batched)
    between = journal.records[batched.position:finished.position]
    refused = [r for r in between if r.kind == "settle" and r["input_tokens"] == r["output_tokens"] == 0]
    assert len(refused) == 1
    assert [r["ask"] for r in between if r.kind == "reserve"].count(refused[0]["ask"]) == 2


def test_facts_of_blobs_come_before_what_names_them(journal):
    """RUN is the first record whatever it names; its facts follow before anything else does."""
    known = set()
    for r in journal.records:
        named = blob_ids(r.members)
        if r.kind == "blob":
            known.add(r["id"])
            data = (journal.blobs / r["id"]).read_bytes()
            assert hashlib.sha256(data).hexdigest() == r["id"]
            assert (r["type"], r["size"], r["chars"], r["max_char"]) == (
                "text", len(data), len(data), 127)
        elif r.kind == "run":
            at_start = named
        else:
            assert at_start <= known or r.kind == "input_list", f"{r} before the facts of the run's inputs"
            own = {v["$blob"] for v in r.members.values() if isinstance(v, dict) and {"$blob", "size"} <= set(v)}
            assert named - own <= known, r
    assert len(known) >= 2


def test_a_directory_is_recorded_as_a_list_and_its_files_as_they_are_read(journal):
    listed = journal.one("input_list")
    assert "a.txt" in json.dumps(listed.members)
    read, = [r for r in journal.all("call_started", agent="root", cell=1)]
    assert "a.txt" in json.dumps(read["args"])
    assert "content of a" in json.dumps(result_of(journal, read)["value"])
    assert listed.position < read.position


def test_every_node_that_a_view_shows_has_its_record(run_and_journal):
    run, journal = run_and_journal
    for agent in ("root", "root.a", "root.b"):
        nodes = journal.all("node", agent=agent)
        assert [n["id"] for n in run.nodes(agent)] == [r["id"] for r in nodes]
        assert nodes[0]["type"] == "user_query" and nodes[-1]["type"] == "done_output"
        times = [r["t"] for r in nodes]
        assert times == sorted(times)


def test_everything_is_recorded_before_it_acts(go, tmp_path):
    """The journal as the model's server finds it at a request, and as a cell's code finds it."""
    def snapshot(name):
        (tmp_path / name).mkdir()
        (tmp_path / name / "journal").write_bytes((tmp_path / "run1.rlm" / "journal").read_bytes())

    def plan(request):
        snapshot("asked")
        return ("import shutil, os\n"
                "def snapshot(name):\n"
                f"    os.makedirs(f'{tmp_path}/{{name}}', exist_ok=True)\n"
                f"    shutil.copy('{tmp_path}/run1.rlm/journal', f'{tmp_path}/{{name}}/journal')\n"
                "snapshot('running')\n"
                "print(await llm_query('a'))\n"
                "snapshot('answered')")

    def answer(request):
        snapshot("queried")
        return "done(1)"

    def query(request):
        snapshot("called")
        return "b"

    run = go(mind({"go": [plan, answer]}, query=query))
    assert run.answer == "1", run.stderr

    def ends_with(journal, kind):
        """A session is opened beside the model call, so its record may stand anywhere."""
        return [r.kind for r in journal.records if r.kind != "session_opened"][-1] == kind

    asked = Journal(tmp_path / "asked")
    assert ends_with(asked, "reserve") and not asked.all("settle")
    running = Journal(tmp_path / "running")
    assert ends_with(running, "cell_started")
    assert running.one("session_opened") and running.one("node", type="llm_output")
    called = Journal(tmp_path / "called")
    assert called.one("call_started", name="llm_query")["args"] == ["a"]
    assert ends_with(called, "reserve")
    answered = Journal(tmp_path / "answered")
    assert answered.one("call_finished")["value"] == "b"
    assert ends_with(answered, "call_delivered")
    assert len(answered.all("settle")) + len(answered.all("node", type="llm_output")) >= 2
    queried = Journal(tmp_path / "queried")
    assert ends_with(queried, "reserve")
    assert queried.one("node", type="exec_output")["output"] == "b\n"
