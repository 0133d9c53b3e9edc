"""Edits of runs through the library, and the lines of JSON that make a graph again."""

import subprocess

import pytest
from journal import Journal, cut
from runs import command, go, look, mind  # noqa: F401
from test_fork import COUNT
from test_resume import ANSWER, INPUT, story

pytestmark = pytest.mark.replayed("never", "what was edited by hand is not what happened")


@pytest.fixture
def edit(build_dir):
    """edit(run, ...): what graph_edit prints; edit.fails(...): its complaint."""
    tool = build_dir / "tests" / "tools" / "graph_edit"

    def call(*args, input=None):
        return subprocess.run([tool, *map(str, args)], input=input, capture_output=True, text=True, timeout=60)

    def start(*args, input=None):
        done = call(*args, input=input)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def fails(*args, input=None):
        done = call(*args, input=input)
        assert done.returncode == 1 and not done.stdout, (done.returncode, done.stdout)
        return done.stderr

    start.fails = fails
    return start


@pytest.fixture
def count(go):
    run = go(mind({"go": COUNT}))
    assert run.answer == "[1, 2, 3] noted", run.stderr
    return run


def test_lines_of_a_run_make_its_graph(server, command, run_rlmflow, edit, tmp_path):
    args, path = command(server, "--json", "--input", INPUT)
    server.set_rules(story())
    schema = tmp_path / "schema.json"
    schema.write_text('{\n  "type": "string"\n}\n')
    result = run_rlmflow(*args, "--schema", schema)
    assert result.code == 0, result.stderr
    wanted = edit(path, "digest")
    assert edit("-", "apply", input=result.stdout) == wanted
    view = run_rlmflow("view", path, "--json")
    assert edit("-", "apply", input=view.stdout) == wanted
    less = "".join(line for line in result.stdout.splitlines(True) if '"llm_output"' not in line)
    assert "out of order" in edit.fails("-", "apply", input=less)


def test_lines_of_a_run_that_goes_on_make_its_graph(whole_cut, server, run_rlmflow, edit):
    server.set_rules(story())
    result = run_rlmflow("resume", whole_cut, "--restore", "replay", "--json")
    assert result.code == 0, result.stderr
    assert edit("-", "apply", input=result.stdout) == edit(whole_cut, "digest")


@pytest.fixture
def whole_cut(go, tmp_path):
    """A run whose journal ends in its middle."""
    run = go(story(), "--input", INPUT, "--workers", "4")
    assert run.answer == ANSWER, run.stderr
    records = Journal(run.path).records
    return cut(run.path, tmp_path / "cut.rlm", records[len(records) // 2].end)


def test_the_model_sees_an_edited_conversation(count, edit, server, run_rlmflow, look):
    edit(count.path, "rewind", "turn2")
    digest = edit(count.path, "replace", "root:3", "exec_output", "something luckier")
    assert edit(count.path, "digest") == digest
    edit(count.path, "after", "turn1", "user_query", "by the way")
    seen = []

    def reply(request):
        seen.extend(text for role, text in request.messages)
        return "done(seen)"

    server.reset()
    server.set_rules(mind({"go": reply}))
    run = look(run_rlmflow("resume", count.path, "--restore", "replay"), count.path)
    assert run.answer == "[1, 2]", run.stderr  # the cells were found behind the injected node
    assert any("by the way" in text for text in seen)
    assert any("something luckier" in text for text in seen)
    assert not any(count.seen()[0].strip() in text for text in seen), seen


def test_cells_of_removed_nodes_are_left_out(count, edit, server, run_rlmflow, look):
    actions = [n["seq"] for n in count.nodes(type="exec_action")]
    edit(count.path, "rewind", "turn3")
    edit(count.path, "remove", f"root:{actions[1]}")
    edit(count.path, "remove", f"root:{actions[1]}")  # and what it printed
    server.reset()
    server.set_rules(mind({"go": ["?", "?", "?", "done(seen)"]}))
    run = look(run_rlmflow("resume", count.path, "--restore", "replay"), count.path)
    assert run.answer == "[1, 3]", run.stderr


def test_edits_are_refused_where_they_make_no_graph(count, edit):
    before = (count.path / "journal").read_bytes()
    last = len(count.nodes()) - 1
    for args in (("after", str(last), "exec_output", "x"), ("before", "1", "done_output", "x"),
                 ("replace", "2", "done_output", "x")):
        assert "only a user_query may follow" in edit.fails(count.path, *args)
    assert edit.fails(count.path, "remove", "n_0").startswith("-5 ")
    assert (count.path / "journal").read_bytes() == before


def test_a_branch_is_merged_back(count, edit, run_rlmflow, server, tmp_path, look):
    fork = tmp_path / "fork.rlm"
    server.set_rules(mind({"go": COUNT[:2] + ["seen.append(9)", "done(seen)"]}))
    forked = run_rlmflow("run", "--from", f"{count.path}@turn2", "-o", fork, "--restore", "replay")
    assert forked.stdout == "[1, 2, 9]\n", forked.stderr
    edit(count.path, "merge", fork)
    server.reset()
    told = []

    def reply(request):
        told.append(request.messages[-1][1])
        return "done('seen it')"

    server.set_rules(mind({"go": reply}))
    run = look(run_rlmflow("resume", count.path), count.path)
    assert run.answer == "seen it", run.stderr
    assert "[1, 2, 9] (folded 2 exec steps)" in told[0], told


def test_a_removed_child_is_gone_and_its_money_is_not(go, edit, run_rlmflow, look):
    run = go(story(), "--input", INPUT, "--workers", "4")
    calls = run.usage["calls"]
    edit(run.path, "remove-child", "root.w0")
    again = look(run_rlmflow("view", run.path, "--json"), run.path)
    assert "root.w0" not in again.ends and again.usage["calls"] == calls
