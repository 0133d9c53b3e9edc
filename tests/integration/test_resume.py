"""A run that was killed goes on: same answer, nothing bought twice, nothing launched twice."""

import pytest
from journal import Journal, cut
from runs import command, go, look, mind  # noqa: F401

ROOT = [
    "seen = []\nwords = INPUTS['corpus'].split()\nseen.append(len(words))\nprint(seen)",
    "import asyncio\n"
    "halves = words[:3], words[3:]\n"
    "first = launch_subagents([{'query': f'work {i}', 'name': f'w{i}', 'inputs': {'part': ' '.join(h)}}"
    " for i, h in enumerate(halves)])\n"
    "results, note = await asyncio.gather(first, llm_query('a note, please'))\n"
    "seen.append(note)\nprint(results)",
    "notes = await llm_query_batched(['one', 'two', 'three'])\nseen += notes\nprint(budget()['turns_left'] > 0)",
    "more = await launch_subagents([{'query': 'work 9'}, {'query': 'work 8'}])\nseen += more\nprint(len(seen))",
    "done('|'.join(map(str, seen + results)))",
]
WORK = [
    "n = 0\nparts = INPUTS.get('part', 'none').split()",
    "for p in parts: n += len(p)\nprint(n)",
    "done(f'{n}:{await llm_query(\"deep \" + parts[0])}')",
]
ANSWER = "6|noted|noted|noted|noted|4:noted|4:noted|15:noted|15:noted"
INPUT = "corpus=aaaaa bbbbb ccccc ddddd eeeee fffff"


def story():
    return mind({"go": ROOT, "work": WORK})


def bought(path):
    """[(agent, turn or prompt)] of the replies that a journal holds."""
    turns, found = {}, []
    for record in Journal(path).records:
        agent = record.get("agent")
        if record.kind == "node" and record["type"] == "llm_output":
            turns[agent] = turns.get(agent, 0) + 1
            found.append((agent, turns[agent]))
        elif record.kind == "settle" and record.get("reply") is not None:
            found.append((agent, record["cell"], record["call"], record["part"]))
    return found


@pytest.fixture
def whole(go, server):
    run = go(story(), "--input", INPUT, "--workers", "4")
    assert run.answer == ANSWER, run.stderr
    return run


def check_graph(run):
    """Nothing was launched twice, every launch was closed, every turn is there once."""
    assert set(run.ends) == {"root", "root.w0", "root.w1", "root.child0", "root.child1"}
    assert set(run.ends.values()) == {"answered"}
    for agent in run.ends:
        launches = [n["call_id"] for n in run.nodes(agent, "supervising_output")]
        resumes = [n["call_id"] for n in run.nodes(agent, "resume_action")]
        assert sorted(launches) == sorted(resumes) and len(set(launches)) == len(launches)
        assert len(run.nodes(agent, "user_query")) == 1
        assert len(run.nodes(agent, "llm_output")) == (5 if agent == "root" else 3)


def resume_at(whole, end, tmp_path, server, run_rlmflow, look, *flags):
    copy = cut(whole.path, tmp_path / f"cut{end}.rlm", end)
    server.reset()
    server.set_rules(story())
    before = bought(copy)
    result = run_rlmflow("resume", copy, *flags)
    asked = len(server.requests)
    run = look(result, copy)
    return run, before, asked



def test_every_record_boundary_with_cells_run_again(whole, tmp_path, server, run_rlmflow, look):
    total = len(bought(whole.path))
    for record in Journal(whole.path).records[1:-2]:
        end, kind = record.end, record.kind
        run, before, asked = resume_at(whole, end, tmp_path, server, run_rlmflow, look, "--restore",
                                       "replay")
        assert run.answer == ANSWER, (end, kind, run.stderr)
        check_graph(run)
        assert asked == total - len(before), (end, kind)
