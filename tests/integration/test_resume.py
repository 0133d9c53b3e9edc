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
FEW, TEN = (2, 2), (6, 4)  # how many children a run launches, the first time and the second


def root(first, second):
    """The cells of the root. Those of the first launch get a part of the corpus."""
    return [
        "seen = []\nwords = INPUTS['corpus'].split()\nseen.append(len(words))\nprint(seen)",
        "import asyncio\n"
        f"parts = [words[i::{first}] for i in range({first})]\n"
        "first = launch_subagents([{'query': f'work {i}', 'name': f'w{i}', 'inputs': {'part': ' '.join(p)}}"
        " for i, p in enumerate(parts)])\n"
        "results, note = await asyncio.gather(first, llm_query('a note, please'))\n"
        "seen.append(note)\nprint(results)",
        "notes = await llm_query_batched(['one', 'two', 'three'])\nseen += notes\nprint(budget()['turns_left'] > 0)",
        f"more = await launch_subagents([{{'query': f'work {{9 - i}}'}} for i in range({second})])\n"
        "seen += more\nprint(len(seen))",
        "done('|'.join(map(str, seen + results)))",
    ]


WORK = [
    "n = 0\nparts = INPUTS.get('part', 'none').split()",
    "for p in parts: n += len(p)\nprint(n)",
    "done(f'{n}:{await llm_query(\"deep \" + parts[0])}')",
]
INPUT = "corpus=aaaaa bbbbb ccccc ddddd eeeee fffff"


def answer_of(first, second):
    """What such a run answers."""
    return "|".join(["6", *["noted"] * 4, *["4:noted"] * second, *[f"{30 // first}:noted"] * first])


ANSWER = answer_of(*FEW)


def story(children=FEW):
    """The minds of a run with so many children."""
    return mind({"go": root(*children), "work": WORK})


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


def check_graph(run, children=FEW):
    """Nothing was launched twice, every launch was closed, every turn is there once."""
    first, second = children
    assert set(run.ends) == {"root", *(f"root.w{i}" for i in range(first)),
                             *(f"root.child{i}" for i in range(second))}
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


@pytest.mark.parametrize("children, share", [(FEW, 8), (TEN, 40)], ids=["4 children", "10 children"])
def test_record_boundaries_with_cells_run_again(go, tmp_path, resumer, children, share):
    whole = go(story(children), "--input", INPUT, "--workers", "4")
    records, total, answer = Journal(whole.path).records, len(bought(whole.path)), answer_of(*children)
    assert whole.answer == answer, whole.stderr
    accepted = next(r.position for r in records if r.kind == "node" and r["type"] == "done_output"
                    and r["agent"] == "root")

    def at(record):
        copy = cut(whole.path, tmp_path / f"cut{record.end}.rlm", record.end)
        before, left = len(bought(copy)), (copy / "journal").read_bytes()
        run, asked = resumer.resume(copy, "--restore", "replay", rules=story(children))
        if record.position >= accepted:
            assert run.code == 2 and "has ended with an answer" in run.stderr, (record, run.stderr)
            assert (copy / "journal").read_bytes() == left
            return
        assert run.answer == answer, (record, run.stderr)
        check_graph(run, children)
        assert asked == total - before, record

    chosen = {r.position: r for r in [*records[:2], *boundaries(records, share), *records[-2:]]}
    assert len(chosen) > 20
    resumer.each(at, chosen.values())
