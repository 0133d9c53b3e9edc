"""Inputs of a run that goes on: directories that are gone or changed, and large texts in restored calls."""

import shutil

import pytest
from journal import Journal, cut
from runs import command, go, look, mind  # noqa: F401
from test_resume import Resumer, resumer  # noqa: F401

READS = ["a = INPUTS['docs']['a.txt']\nprint(a)", "print(len(INPUTS['docs']))",
         "try:\n    print(INPUTS['docs']['b.txt'])\nexcept Exception as e:\n    print(type(e).__name__, e)",
         "done(a)"]


@pytest.fixture
def docs(tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.txt").write_text("first a")
    (folder / "b.txt").write_text("first b")
    return folder


def after_first_read(run, tmp_path):
    """A copy that ends before the third turn."""
    record = Journal(run.path).all("reserve")[2]
    return cut(run.path, tmp_path / "cut.rlm", record.end)


def test_a_file_that_was_read_is_as_it_was_read(go, resumer, tmp_path, docs):
    whole = go(mind({"go": READS}), "--input", f"docs=@{docs}")
    assert whole.answer == "first a", whole.stderr
    copy = after_first_read(whole, tmp_path)
    (docs / "a.txt").write_text("second a")
    (docs / "b.txt").write_text("another b")
    run, _ = resumer.resume(copy, "--restore", "replay", rules=mind({"go": READS}))
    assert run.answer == "first a", run.stderr
    assert run.seen()[:2] == ["first a", "2"]
    assert run.seen()[2] == "another b", "what was not read yet is as it is now"
    assert "b.txt" in run.stderr and "changed" in run.stderr, run.stderr


def test_a_directory_that_is_gone(go, resumer, tmp_path, docs):
    whole = go(mind({"go": READS}), "--input", f"docs=@{docs}")
    copy = after_first_read(whole, tmp_path)
    shutil.rmtree(docs)
    run, _ = resumer.resume(copy, "--restore", "replay", rules=mind({"go": READS}))
    assert run.answer == "first a", run.stderr
    assert f"input docs: the directory {docs} is not there any more" in run.stderr
    assert run.seen()[:2] == ["first a", "2"]
    assert "b.txt" in run.seen()[2] and "first b" not in run.seen()[2]


@pytest.mark.parametrize("length", [70_000, 200_000])
def test_large_texts_in_restored_calls(go, resumer, tmp_path, length, server):
    """An input and a slice of it, given to a child and to a model, before the cut and behind it."""
    (tmp_path / "corpus").write_text("é" * length)
    cells = ["text = INPUTS['corpus']\nslice = text[1:]",
             "r = await launch_subagents([{'query': 'work', 'inputs': {'x': text, 'y': slice}}])\nprint(r)",
             "n = await llm_query(slice)\nprint(n)",
             "m = await launch_subagents([{'query': 'work', 'inputs': {'x': slice, 'y': text}}])",
             "done(f'{r} {m} {n} {len(text)} {len(slice)}')"]
    rules = mind({"go": cells, "work": ["t = INPUTS['x']", "done(f\"{len(t)}/{len(INPUTS['y'])}\")"]},
                 query=lambda r: str(len(r.messages[-1][1])))
    flags = ["--input", f"corpus=@{tmp_path / 'corpus'}"]
    whole = go(rules, *flags)
    n = length
    assert whole.answer == f"['{n}/{n - 1}'] ['{n - 1}/{n}'] {n - 1} {n} {n - 1}", whole.stderr
    records = Journal(whole.path).records
    chosen = [r for r in records[2:-2] if r.kind in ("child", "blob", "call_started", "call_delivered", "cell_started")]

    def at(record):
        copy = cut(whole.path, tmp_path / f"cut{record.end}.rlm", record.end)
        run, _ = resumer.resume(copy, "--restore", "replay", rules=rules)
        assert run.answer == whole.answer, (record, run.stderr)
        assert not any("printed something else" in text for text in run.seen())

    resumer.each(at, chosen[::2])
