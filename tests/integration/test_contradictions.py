"""Records that are well framed and cannot be true, and runs that are begun at the same moment."""

import concurrent.futures

import pytest
from journal import Journal, cut, rewrite
from replies import cell
from runs import command, go, look, mind  # noqa: F401

pytestmark = pytest.mark.replayed("never", "these runs are changed on purpose")
AMOUNTS = [-1, -10**15, 2**62, 2**63 - 1, "x", None, 1.5]


@pytest.fixture
def whole(go):
    return go(mind({"go": ["x = 1", "print(x)", "done('end')"]}))


def test_no_amount_of_a_record_lowers_what_is_spent(whole, server, tmp_path, run_rlmflow):
    """Of a reply that came, and of one that was lost and is charged at its bound."""
    lost = cut(whole.path, tmp_path / "lost.rlm", Journal(whole.path).all("reserve")[1].end)
    for i, amount in enumerate(AMOUNTS):
        for name, run, kind, change in [
                ("reply", whole.path, "node", lambda r: {"usage": {**r["usage"], "output_tokens": amount}}),
                ("lost", lost, "reserve", lambda r: {"input_tokens": amount})]:
            copy = rewrite(run, tmp_path / f"{name}{i}.rlm", lambda r: {
                **r.members, **(change(r) if r.kind == kind and (kind == "reserve" or r.get("usage")) else {})})
            before = len(server.requests)
            told = run_rlmflow("resume", copy, "--max-budget", "10k", "-q")
            assert told.code == 2 and "_tokens\" is no number" in told.stderr, (name, amount, told.stderr)
            assert len(server.requests) == before


@pytest.mark.parametrize("restored", [[99, 98], [3, 4], [2, 99]])
def test_a_session_that_restored_what_is_not_there(go, tmp_path, run_rlmflow, restored):
    run = go(mind({"go": ["x = 1", "import os\nos._exit(3)", "print(x)", "done('end')"]}), "--restore", "replay")
    assert run.answer == "end" and [r["restored"] for r in Journal(run.path).all("session_opened")] == [[], [1]]
    copy = rewrite(run.path, tmp_path / "copy.rlm", lambda r: (
        {**r.members, "restored": restored} if r.get("session") == 2 and r.kind == "session_opened" else r.members))
    told = run_rlmflow("replay", copy, "--execute", "-q")
    assert told.code in (0, 1), told.stderr


def test_runs_that_begin_at_once_get_names_of_their_own(run_rlmflow, scripted_model):
    model = scripted_model([({}, cell("done('end')"))])
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        ended = list(pool.map(lambda _: run_rlmflow("run", "same", "--model", model, "-q"), range(16)))
    assert [r.code for r in ended] == [0] * 16, [r.stderr for r in ended]
