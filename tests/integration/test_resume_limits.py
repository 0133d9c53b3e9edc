"""Caps, limits and ends over kills: what was spent stays spent, and what is given anew holds."""

import json
import time

import pytest
import records
from journal import Journal, cut
from runs import command, go, look, mind  # noqa: F401
from test_resume import Resumer, bought, boundaries, resumer  # noqa: F401

CELLS = ["x = 1", "x += len(await llm_query('q' * 400))", "x += 1\nprint(x)", "x += 2", "done(str(x))"]


def rules():
    return mind({"go": CELLS})


def tokens(server):
    """What the server billed."""
    return sum((r.input_tokens or 0) + (r.output_tokens or 0) for r in server.requests)


def lost(path):
    """The reservations whose replies never came: [tokens]."""
    open_asks = {}
    for r in Journal(path).records:
        if r.kind == "reserve":
            open_asks[r["ask"]] = r["input_tokens"] + r["output_tokens"]
        elif r.kind == "settle":
            open_asks.pop(r["ask"], None)
        elif r.kind == "node" and r["type"] == "llm_output":
            open_asks.pop(r.get("call_id"), None)
    return list(open_asks.values())


@pytest.mark.parametrize("kind", ["reserve", "node", "settle"])
def test_a_cap_holds_over_kills_with_the_lost_reservation(go, server, resumer, tmp_path, kind):
    whole = go(rules(), "--max-output-tokens", "600")
    assert whole.answer == "9", whole.stderr
    billed = tokens(server)
    for record in [r for r in Journal(whole.path).records[2:-2] if r.kind == kind]:
        copy = cut(whole.path, tmp_path / f"{kind}{record.end}.rlm", record.end)
        held = sum(lost(copy))
        spent = sum(u["input_tokens"] + u["output_tokens"] for u in
                    [r.get("usage", r.members) for r in Journal(copy).records
                     if r.kind == "settle" or r.kind == "node" and r.get("usage")])
        for cap in (spent + held + 1500, billed + held + 800):
            again = tmp_path / f"{kind}{record.end}-{cap}.rlm"
            cut(copy, again, record.end)
            server.reset()
            server.set_rules(rules())
            run = resumer.run_rlmflow("resume", again, "--restore", "replay", "--max-budget", cap)
            run = resumer.look(run, again)
            # The lost reply may have been billed: with it the cap is not passed.
            assert spent + held + tokens(server) <= cap, (record, cap)
            total = run.usage["input_tokens"] + run.usage["output_tokens"]
            assert total == spent + held + tokens(server)
            assert run.answer == "9" or run.ends["root"] == "budget", run.stderr
        # Killed once more, before anything is asked: it is charged once.
        first = cut(again, tmp_path / f"{kind}{record.end}-once.rlm",
                    next(r.end for r in Journal(again).records if r.kind in ("resumed", "settle")
                         and r.end > record.end and (r.kind == "settle" or not held)))
        server.reset()
        server.set_rules(rules())
        twice = resumer.run_rlmflow("resume", first, "--restore", "replay", "--max-budget", "1M")
        twice = resumer.look(twice, first)
        assert twice.answer == "9"
        total = twice.usage["input_tokens"] + twice.usage["output_tokens"]
        assert total == spent + held + tokens(server), record


def test_limits_that_are_given_anew_hold_and_are_recorded(go, resumer, tmp_path):
    whole = go(rules(), "--max-iters", "2")
    assert whole.ends == {"root": "max_iters"} and whole.code == 1
    run, asked = resumer.resume(whole.path, "--restore", "replay", "--max-iters", "4", rules=rules())
    assert run.ends["root"] == "max_iters" and asked == 2
    run, asked = resumer.resume(whole.path, "--restore", "replay", "--max-iters", "9", rules=rules())
    assert run.answer == "9" and asked == 1, run.stderr
    drives = [r["options"]["limits"]["max_iters"] for r in Journal(whole.path).records
              if r.kind in ("run", "resumed")]
    assert drives == [2, 4, 9]


def test_a_model_and_caps_that_are_given_anew_hold_and_are_recorded(go, server, run_rlmflow, look):
    """Also for the drives after it, which are given nothing."""
    whole = go(rules(), "--max-iters", "2", "--max-budget", "90k", "--price", "other=2/10")
    caps = ["--max-budget", "80k", "--max-cost", "3", "--max-time", "50s", "--max-output-tokens", "700"]
    for flags in (["--model", "other", "--max-iters", "3", *caps], ["--max-iters", "9"]):
        server.reset()
        server.set_rules(rules())
        run = look(run_rlmflow("resume", whole.path, "--restore", "replay", *flags), whole.path)
        assert {(r.model, r.max_tokens) for r in server.requests} == {("other", 700)}, run.stderr
    assert run.answer == "9"
    drives = [r["options"] for r in Journal(whole.path).records if r.kind in ("run", "resumed")]
    assert [o["models"]["default"] for o in drives] == [
        {"name": name, "address": drives[0]["models"]["default"]["address"]} for name in ("m", "other", "other")]
    names = ("max_budget", "max_cost_nano", "max_time_ms", "max_output_tokens")
    assert [[o["limits"][n] for n in names] for o in drives] == [
        [90_000, 0, 0, 8192], *[[80_000, 3 * 10**9, 50_000, 700]] * 2]


@pytest.mark.parametrize("flags, reason", [(["--max-iters", "3"], "max_iters"), (["--max-budget", "3500"], "budget")])
@pytest.mark.parametrize("mode", ["replay", "fresh"])
def test_a_run_that_a_limit_ended_goes_on(go, resumer, flags, reason, mode):
    cells = [*CELLS[:3], "if 'x' in globals(): x += 2", "done(str(x) if 'x' in globals() else 'gone')"]
    whole = go(mind({"go": cells}), *flags)
    assert whole.ends == {"root": reason}, whole.stderr
    run, _ = resumer.resume(whole.path, "--restore", mode, "--max-iters", "20", "--max-budget", "1M",
                            rules=mind({"go": cells}))
    assert run.answer == ("9" if mode == "replay" else "gone"), run.stderr


def test_a_cell_that_max_time_cut_off_is_not_run_again(go, resumer, tmp_path):
    notes = tmp_path / "notes"
    code = f"with open({str(notes)!r}, 'a') as f: f.write('x')\nimport time\ntime.sleep(1000)"
    rules = mind({"go": ["x = 1", code, "done('1')"]})
    whole = go(rules, "--max-time", "2s")
    assert whole.ends == {"root": "time"} and notes.read_text() == "x", whole.stderr
    run, _ = resumer.resume(whole.path, "--max-time", "100s", rules=rules)
    assert run.answer == "1", run.stderr
    assert run.errors() == ["interrupted"] and notes.read_text() == "x"


def test_a_run_that_failed_goes_on(go, resumer):
    whole = go(mind({"go": [*CELLS[:2], {"status": 400, "message": "no"}]}))
    assert whole.ends == {"root": "failed"}
    run, asked = resumer.resume(whole.path, "--restore", "replay", rules=rules())
    assert run.answer == "9" and asked == 3, run.stderr


def test_an_answered_run_is_not_resumed(go, resumer):
    whole = go(rules())
    before = (whole.path / "journal").read_bytes()
    result, _ = resumer.resume(whole.path)
    assert result.code == 2 and result.stdout == ""
    assert (f"the run {whole.path} has ended with an answer: there is nothing to resume; to ask more, "
            "continue it with a query") in result.stderr
    assert (whole.path / "journal").read_bytes() == before


@pytest.mark.parametrize("mode, seen", [("replay", "9"), ("fresh", "gone")])
def test_an_answered_run_is_asked_more(go, server, run_rlmflow, look, mode, seen):
    whole = go(rules())
    more = mind({"go": [*CELLS, "done(str(x) if 'x' in globals() else 'gone')"]})
    server.reset()
    server.set_rules(more)
    run = look(run_rlmflow("run", "--continue", whole.path, "and now?", "--restore", mode), whole.path)
    assert run.answer == seen, run.stderr
    assert len(server.requests) == 1
    assert [n["content"] for n in run.nodes(type="user_query")][-1].endswith("and now?")
    assert run.errors() == ([] if mode == "replay" else ["session_lost"])


def test_max_time_is_one_over_all_drives(go, resumer, tmp_path):
    """What the first drive took is gone; the time between the two is not counted."""
    slow = ["import time\ntime.sleep(1.5)\nprint(1)", "print(budget()['seconds_left'])", "done('1')"]
    whole = go(mind({"go": slow}), "--max-time", "60s")
    record = Journal(whole.path).all("node", type="exec_output")[0]
    copy = cut(whole.path, tmp_path / "cut.rlm", record.end)
    time.sleep(1)
    run, _ = resumer.resume(copy, rules=mind({"go": slow}))
    left = float(run.seen()[-1])
    assert 0 < left <= 58.5, left
    elapsed = Journal(copy).one("resumed")["elapsed_ms"]
    assert 1500 <= elapsed, elapsed
    assert json.dumps(run.ends) == '{"root": "answered"}'


def long_ago(path, end, seconds, **members):
    """As if the run had begun a day ago and ended, with that record, these seconds after its last node."""
    kept = records.read(path)[:end]
    for _, found in kept:
        if "t" in found:
            found["t"] -= 86400 * 10**6
    last = max(m["t"] for k, m in kept if k == "node")
    kept[-1][1].update(members, t=last + int(seconds * 1e6))
    records.write(path, kept)
    return last - kept[0][1]["t"]


def test_the_time_of_a_drive_counts_to_its_last_record(go, resumer):
    """A stop in the middle of a cell that had run for half a minute: its call is the last that is known."""
    cells = ["print(await llm_query('slow'))", "done('1')"]
    whole = go(mind({"go": cells}))
    place = next(i for i, r in enumerate(Journal(whole.path).records) if r.kind == "settle")
    before_us = long_ago(whole.path, place + 1, 30)
    resumer.resume(whole.path, rules=mind({"go": cells}))
    assert Journal(whole.path).one("resumed")["elapsed_ms"] == (before_us + 30 * 10**6) // 1000


@pytest.mark.parametrize("members, counted", [({"still_ms": 29000}, 1), ({}, 30)])
def test_the_wait_for_an_approval_is_not_counted_to_the_end_of_a_drive(go, resumer, members, counted):
    whole = go(mind({"go": ["print(1)", "done('1')"]}), "--max-iters", "1")
    before_us = long_ago(whole.path, None, 30, **members)
    resumer.resume(whole.path, "--max-iters", "5", rules=mind({"go": ["print(1)", "done('1')"]}))
    assert Journal(whole.path).one("resumed")["elapsed_ms"] == (before_us + counted * 10**6) // 1000
