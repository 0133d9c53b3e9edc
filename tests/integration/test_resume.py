"""A run that was killed goes on: same answer, nothing bought twice, nothing launched twice."""

import collections
import concurrent.futures
import os
import queue

import pytest
from journal import Journal, cut
from runs import command, go, look, mind  # noqa: F401

TORTURE = bool(os.environ.get("RLMFLOW_TORTURE"))  # everything, instead of a sample
WIDTH = 4
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


class Resumer:
    """Resumes copies of a run, several at once, each with a server of its own."""

    def __init__(self, make_server, run_rlmflow, look):
        self.servers = queue.Queue()
        for _ in range(WIDTH):
            self.servers.put(make_server())
        self.run_rlmflow, self.look = run_rlmflow, look

    def resume(self, path, *flags, rules=None):
        """Resumes a run: (the Run, how many requests its server got). Of one that is refused, (the
        Result, 0)."""
        server = self.servers.get()
        try:
            server.reset()
            server.set_rules(story() if rules is None else rules)
            result = self.run_rlmflow("resume", path, "--base-url", server.base_url, *flags)
            if result.code == 2:
                return result, 0
            return self.look(result, path), len(server.requests)
        finally:
            self.servers.put(server)

    @staticmethod
    def each(work, things):
        """Does the work with each thing; the first failure is raised."""
        with concurrent.futures.ThreadPoolExecutor(WIDTH) as pool:
            return list(pool.map(work, things))


@pytest.fixture
def resumer(make_server, run_rlmflow, look):
    return Resumer(make_server, run_rlmflow, look)


def boundaries(records, share=6):
    """Of the records, those after which the journal is cut: all in torture, else before some and after
    some of each kind."""
    if TORTURE:
        return list(records)
    counts, chosen = collections.Counter(r.kind for r in records), set()
    seen = collections.Counter()
    for before, record in zip([None, *records], records):
        n = seen[record.kind]
        seen[record.kind] += 1
        if n % share == 0 or counts[record.kind] < 3:
            chosen.add(record.position)
        if before and (n % share == share // 2 or counts[record.kind] < 3):
            chosen.add(before.position)
    return [r for r in records if r.position in chosen]


def test_record_boundaries_with_cells_run_again(whole, tmp_path, resumer):
    total = len(bought(whole.path))

    def at(record):
        copy = cut(whole.path, tmp_path / f"cut{record.end}.rlm", record.end)
        before = len(bought(copy))
        run, asked = resumer.resume(copy, "--restore", "replay")
        assert run.answer == ANSWER, (record, run.stderr)
        check_graph(run)
        assert asked == total - before, record

    resumer.each(at, boundaries(Journal(whole.path).records[1:-2]))
