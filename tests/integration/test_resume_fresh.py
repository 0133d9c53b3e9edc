"""A run that is cut after any of its records and goes on as it does where nothing is said: with new
sessions. No code runs twice, and each model is told once which of its variables are gone."""

import pytest
from journal import Journal, cut
from runs import command, go, look, mind  # noqa: F401
from test_resume import boundaries, bought, resumer  # noqa: F401
from test_resume_told import NEW_SESSION, NOT_RUN_AGAIN

NAMES = {"root": "xry", "work": "z"}  # what the cells bind, one each
CELLS = {
    "root": ["x = 1", "r = await launch_subagents([{'query': f'work {i}', 'name': f'w{i}'} for i in (0, 1)])",
             "y = await llm_query('a')", "done('the names ' + ''.join(n for n in 'xry' if n in globals()))"],
    "work": ["z = 1", "done('z' if 'z' in globals() else '-')"],
}


def rules():
    return mind({"go": CELLS["root"], "work": CELLS["work"]})


class Before:
    """What the journal of a copy says of an agent, before it is resumed."""

    def __init__(self, journal, agent):
        kind = "root" if agent == "root" else "work"
        nodes = journal.all("node", agent=agent)
        self.began = len(journal.all("cell_started", agent=agent))
        self.ended = sum(r["type"] in ("exec_output", "done_output") for r in nodes)
        self.answered = any(r.kind == "call_finished" and r["agent"] == agent and r["cell"] == len(CELLS[kind])
                            for r in journal.records) or any(r["type"] == "done_output" for r in nodes)
        self.only_the_answer_is_left = sum(r["type"] == "llm_output" for r in nodes) > self.began == len(
            CELLS[kind]) - 1
        self.names = sorted(NAMES[kind][:self.ended])
        self.bound_after = NAMES[kind][self.began:]
        self.turns = len(CELLS[kind]) + (self.began == len(CELLS[kind]) and not self.answered)

    @property
    def told(self):
        """What its model is told, or None."""
        if self.answered or not self.began or self.only_the_answer_is_left:
            return None
        gone = f" These variables are gone: {', '.join(self.names)}." if self.names else ""
        return (NOT_RUN_AGAIN if self.began > self.ended else NEW_SESSION) + gone


@pytest.mark.replayed("recorded", "what is run again is the business of test_resume.py")
def test_record_boundaries_with_new_sessions(go, tmp_path, resumer):
    whole = go(rules(), "--workers", "2")
    assert whole.answer == "the names xry", whole.stderr
    records = Journal(whole.path).records
    last = next(r.position for r in records if r.kind == "node" and r["type"] == "done_output"
                and r["agent"] == "root")
    seen = []

    def at(record):
        copy = cut(whole.path, tmp_path / f"cut{record.end}.rlm", record.end)
        prefix, had = Journal(copy), len(bought(copy))
        launched = {r["name"] for r in prefix.all("child")}
        run, asked = resumer.resume(copy, rules=rules())
        root = Before(prefix, "root")
        after = Journal(copy)
        if not root.answered:
            assert run.answer == "the names " + root.bound_after, (record, run.stderr)
        assert set(run.ends) == {"root", *(f"root.{n}" for n in (launched if root.began > 1 else ("w0", "w1")))}
        assert asked == len(bought(copy)) - had, record
        cells = [(r["agent"], r["cell"]) for r in after.all("cell_started")]
        assert len(set(cells)) == len(cells) and not any(r["restored"] for r in after.all("session_opened"))
        for agent in run.ends:
            before = Before(prefix, agent)
            assert len(run.nodes(agent, "llm_output")) == before.turns, (record, agent)
            told = [text for text in run.seen(agent) if NEW_SESSION in text or NOT_RUN_AGAIN in text]
            assert len(told) == (before.told is not None), (record, agent, told)
            assert before.told is None or before.told in told[0], (record, agent, told)
            seen.append(before.told)

    resumer.each(at, {r.position: r for r in [*records[:2], *boundaries(records, 4)]
                      if r.position < last}.values())
    assert {s and (s.startswith(NOT_RUN_AGAIN), "gone" in s) for s in seen} == {
        None, (True, True), (True, False), (False, True)}
