"""--approve: a person on a pseudo-terminal is asked before code runs; without a terminal the run stops,
and resuming it asks again."""

import os
import re
import signal
import time
from pathlib import Path

import pytest
from journal import Journal, cut
from replies import cell
from terminals import person  # noqa: F401

ASK = rb"\[q\]uit: $"


@pytest.fixture
def run(person, scripted_model, tmp_path):
    """Starts a run of these cells (by turn of the root) whose code is asked for."""
    def start(*cells, rule="all", children=(), env=None, flags=(), **options):
        script = [({"agent": "root", "turn": i + 1}, cell(c)) for i, c in enumerate(cells)]
        script += [({"agent": agent}, cell(code)) for agent, code in children]
        return person("run", "go", "--model", scripted_model(script), "--approve", rule, "-q", "-o",
                      tmp_path / "run.rlm", *flags, env=env, **options)
    return start


def gates(tmp_path):
    return Journal(tmp_path / "run.rlm").all("gate")


def answers(tmp_path):
    return [(r["answer"]["decision"], r["answer"].get("text", "")) for r in gates(tmp_path)
            if r.get("answer")]


def replays(run_rlmflow, tmp_path, name="run.rlm"):
    for flags in ((), ("--execute",)):
        result = run_rlmflow("replay", tmp_path / name, "-q", *flags)
        assert result.code == 0, result.stderr


def test_code_runs_when_a_person_agrees(run, run_rlmflow, tmp_path):
    p = run("x = 'a\\tb'\nif x:\n    print(x)", "done('yes')")
    seen = p.sees(ASK)
    assert "root, turn 1" in seen
    assert "\n   1 | x = 'a\\tb'\n   2 | if x:\n   3 |     print(x)\n---\n" in seen
    assert not Journal(tmp_path / "run.rlm").all("cell_started")
    p.types("y\n")
    assert "root, turn 2" in p.sees(ASK)
    p.types("what?\n")
    p.sees(ASK)
    p.types("y\n")
    assert p.end(0)[0] == "yes"
    asked, answered = gates(tmp_path)[:2]
    assert asked["asked"]["shown"].startswith("x = 'a\\tb'") and not asked.get("answer")
    assert answered["answer"]["decision"] == "allow" and "terminal" in answered["answer"]["who"]
    assert answered["answer"]["t"] >= answered["asked"]["t"] == asked["asked"]["t"]
    replays(run_rlmflow, tmp_path)


def test_code_that_is_refused_does_not_run_and_the_model_is_told(run, run_rlmflow, tmp_path):
    p = run(f"open({str(tmp_path / 'ran')!r}, 'w')", "done('gave up')")
    p.sees(ASK)
    p.types("n\n")
    p.sees(rb"Why not.*\? $")
    p.types("it writes files\n")
    p.sees(ASK)
    p.types("y\n")
    assert p.end(0)[0] == "gave up"
    assert not (tmp_path / "ran").exists()
    told = [r for r in Journal(tmp_path / "run.rlm").all("node") if r["type"] == "error_output"]
    assert [(r["error"], r["content"]) for r in told] == [
        ("rejected", "This code was looked at by a person, and was not run. They say: it writes files")]
    replays(run_rlmflow, tmp_path)
    assert not (tmp_path / "ran").exists()


def test_code_is_edited(run, run_rlmflow, tmp_path):
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\ntest -t 0 && test -t 1 && sed -i s/1/42/ \"$1\"\n")
    editor.chmod(0o755)
    p = run("done(1)", env={"EDITOR": str(editor), "TMPDIR": str(tmp_path)}, flags=("--schema", _schema(tmp_path)))
    p.sees(ASK)
    p.types("e\n")
    assert p.end(0)[0] == "42"
    assert answers(tmp_path) == [("rewrite", "done(42)")]
    assert not list(tmp_path.glob("rlmflow-*"))
    journal = Journal(tmp_path / "run.rlm")
    assert journal.one("cell_started")["code"] == "done(42)"
    assert [r["code"] for r in journal.all("node", type="llm_output")] == ["done(1)"]
    replays(run_rlmflow, tmp_path)


def _schema(tmp_path):
    path = tmp_path / "schema.json"
    path.write_text('{"type": "integer"}')
    return path


def test_an_editor_that_fails_or_changes_nothing(run, tmp_path):
    p = run("done('as it was')", env={"EDITOR": "false"})
    p.sees(ASK)
    p.types("e\n")
    assert "nothing was changed" in p.sees(ASK)
    p.types("y\n")
    assert p.end(0)[0] == "as it was"
    assert answers(tmp_path) == [("allow", "")]


def test_an_editor_that_is_left_without_a_change(run, tmp_path):
    p = run("done('as it was')\n\n", env={"EDITOR": "true"})
    p.sees(ASK)
    p.types("e\n")
    assert p.end(0)[0] == "as it was"
    assert answers(tmp_path) == [("allow", "")]


LAUNCH = ("r = await launch_subagents([{'query': 'q', 'name': 'a'}, {'query': 'q', 'name': 'b'}])\n"
          "done(' '.join(r))")


def test_all_of_one_agent_is_allowed_and_others_are_asked_for(run, run_rlmflow, tmp_path):
    p = run("print(1)", "print(2)", LAUNCH, children=[("root.a", "done('A')"), ("root.b", "done('B')")])
    p.sees(ASK)
    p.types("a\n")
    first = p.sees(ASK)
    p.types("y\n")
    second = p.sees(ASK)
    assert {re.search(r"root\.[ab]", text)[0] for text in (first, second)} == {"root.a", "root.b"}
    p.types("y\n")
    assert p.end(0)[0] == "A B"
    assert len(answers(tmp_path)) == 5
    replays(run_rlmflow, tmp_path)


def test_the_run_is_left_and_resumed(run, person, run_rlmflow, tmp_path):
    p = run("x = 1", "done('later')")
    p.sees(ASK)
    p.types("y\n")
    p.sees(ASK)
    p.types("q\n")
    assert "rlmflow resume" in p.end(3)[1].replace(str(p.process.args[0]), "rlmflow")
    assert Journal(tmp_path / "run.rlm").one("run_ended")["reason"] == "awaiting_approval"
    p = person("resume", tmp_path / "run.rlm", "-q", "--restore", "replay")
    seen = p.sees(ASK)
    assert "root, turn 2" in seen and "done('later')" in seen
    p.types("y\n")
    assert p.end(0)[0] == "later"
    assert len(Journal(tmp_path / "run.rlm").all("reserve")) == 2
    replays(run_rlmflow, tmp_path)


def test_without_a_terminal_the_run_stops_and_resuming_it_asks_again(
        run_rlmflow, person, scripted_model, tmp_path):
    model = scripted_model([({"turn": 1}, cell("done('asked')"))])
    path = tmp_path / "run.rlm"
    for command in (("run", "go", "--model", model, "-o", path, "--approve", "all"), ("resume", path)):
        r = run_rlmflow(*command, "--json")
        assert r.code == 3 and r.stderr.count("resume") == 1, r.stderr
        assert '"reason":"awaiting_approval"' in r.stdout.replace(" ", "")
        assert not Journal(path).all("cell_started")
    r = run_rlmflow("view", path)
    assert r.stderr.startswith("the run waits for an approval; go on with: ") and str(path) in r.stderr
    p = person("resume", path, "-q")
    p.sees(ASK)
    p.types("y\n")
    assert p.end(0)[0] == "asked"
    assert len(Journal(path).all("reserve")) == 1
    replays(run_rlmflow, tmp_path)


def test_only_what_a_rule_finds_is_asked_for(run, tmp_path):
    p = run("x = 1", "import os\nx = 2", "done(str(x))", rule=r"match:\bimport\b")
    assert "import os" in p.sees(ASK)
    p.types("y\n")
    assert p.end(0)[0] == "2"
    who = [r["answer"]["who"] for r in gates(tmp_path) if r.get("answer")]
    assert who[0] == who[2] == r"--approve match:\bimport\b" != who[1]


@pytest.mark.parametrize("rule, said", [("some", "match:REGEX"), ("match:(", "match:(")])
def test_a_rule_that_makes_no_sense_is_refused(run_rlmflow, scripted_model, tmp_path, rule, said):
    r = run_rlmflow("run", "go", "--model", scripted_model([({}, cell("done('x')"))]), "--approve", rule,
                    "-o", tmp_path / "run.rlm")
    assert r.code == 2 and said in r.stderr
    assert not (tmp_path / "run.rlm").exists()


def test_what_was_typed_before_the_question_is_no_answer(run, tmp_path):
    p = run("import time, os\nwhile not os.path.exists('go'): time.sleep(0.01)", "done('x')")
    p.sees(ASK)
    p.types("y\ny\ny\n")
    (Path(f"/proc/{p.process.pid}/cwd").resolve() / "go").write_text("")
    p.sees(ASK)
    assert [a[0] for a in answers(tmp_path)] == ["allow"]
    p.types("y\n")
    assert p.end(0)[0] == "x"


# What terminals obey, what they show as nothing or as a plain blank, and what turns the direction of writing.
HIDDEN = "\b\x1b\x7f\x9b\xa0\xad\u061c\u115f\u180e\u2003\u200b\u200d\u2028\u202e\u2060\u2066\u2800" \
    "\u3000\u3164\ue000\ufe0f\ufeff\U000e0041"


def lines_of(seen):
    """The code that a question shows, by line, and what stands under it."""
    frame, *lines = seen[seen.index("--- root"):].split("\n")
    end = next(i for i, line in enumerate(lines) if line.startswith("---"))
    return lines[:end], lines[end:]


def test_nothing_hides_in_code_that_is_shown(run):
    p = run("\n".join(f"# a{c}b" for c in HIDDEN))
    code, under = lines_of(p.sees(ASK))
    assert code == [f"{i:4} ! # a<U+{ord(c):04X}>b" for i, c in enumerate(HIDDEN, 1)]
    assert f"it has {len(HIDDEN)} hidden characters," in under[0]
    p.types("q\n")
    p.end(3)


def test_a_carriage_return_is_no_end_of_a_comment_for_the_person_alone(run, tmp_path):
    """For Python it ends a line, on a terminal it goes back to the start of one."""
    p = run(f"# only a comment\ropen({str(tmp_path / 'ran')!r}, 'w')#\ndone('x')")
    code, _ = lines_of(p.sees(ASK))
    assert code[0].startswith("   1 ! # only a comment<U+000D>open(")
    p.types("q\n")
    p.end(3)
    assert not (tmp_path / "ran").exists()


FRAMES = ["---", "Run it? [y]es, [n]o: y", "--- root.a, turn 1 wants to run this ---", "   9 | x = 1"]


@pytest.mark.parametrize("columns", [None, 31, 80])
def test_no_line_of_code_stands_where_the_questions_do(run, columns):
    """Neither as a line of the code nor where the terminal would break a long one."""
    width = columns or 80
    long = [f"{'界' * (offset % 2)}{' ' * offset}{frame}" for frame in FRAMES for offset in range(width)]
    text = "\n".join(["s = '''", *FRAMES, "".join(long), "'''"])
    p = run(text, columns=columns)
    code, under = lines_of(p.sees(ASK))
    assert all(len(line) + line.count("界") <= width for line in code)
    parts = [re.fullmatch(r"( {,3}\d+ \|| {4} :) ?(.*)", line).groups() for line in code]
    assert "".join("\n" * ("|" in gutter) + rest for gutter, rest in parts)[1:] == text
    assert under[0] == "---" and under[1].startswith("Run it?")
    p.types("q\n")
    p.end(3)


def test_others_go_on_while_a_person_thinks(run, tmp_path):
    p = run(LAUNCH, rule="match:'A'", children=[("root.a", "done('A')"), ("root.b", "done('B')")])
    p.sees(ASK)
    deadline = time.monotonic() + 30
    while not Journal(tmp_path / "run.rlm").all("node", agent="root.b", type="done_output"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    p.types("y\n")
    assert p.end(0)[0] == "A B"


def test_an_interrupt_at_the_question(run, tmp_path):
    p = run("done('x')")
    p.sees(ASK)
    p.types("\x03")
    p.end(130)
    assert not answers(tmp_path)


def test_the_end_of_input_leaves_the_run(run, tmp_path):
    p = run("done('x')")
    p.sees(ASK)
    p.types("\x04")
    p.end(3)


@pytest.mark.parametrize("ignored, code, reason", [(False, 130, "interrupted"),
                                                   (True, 3, "awaiting_approval")])
def test_a_terminal_that_vanishes_at_the_question(run, run_rlmflow, tmp_path, ignored, code, reason):
    """The program is told so by SIGHUP, unless that is ignored, as nohup does."""
    p = run("done('x')", hangup=signal.SIG_IGN if ignored else signal.SIG_DFL)
    p.sees(ASK)
    p.leaves()
    p.process.communicate(timeout=60)
    assert p.process.returncode == code
    assert not answers(tmp_path) and Journal(tmp_path / "run.rlm").one("run_ended")["reason"] == reason
    assert run_rlmflow("resume", tmp_path / "run.rlm", "--approve", "none", "-q").stdout.strip() == "x"


def test_a_run_goes_on_without_its_terminal_where_hangups_are_ignored(person, scripted_model, tmp_path):
    model = scripted_model([({}, cell("import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
                                      "done('x')"))])
    p = person("run", "go", "--model", model, "-o", tmp_path / "run.rlm", hangup=signal.SIG_IGN, live=True,
               env={"TERM": "xterm"})
    p.sees(rb"1 at work")
    p.leaves()
    (Path(f"/proc/{p.process.pid}/cwd").resolve() / "go").write_text("")
    assert p.process.communicate(timeout=60)[0] == b"x\n" and p.process.returncode == 0


def test_what_was_decided_holds_wherever_the_run_is_killed(run, run_rlmflow, tmp_path):
    """Nothing that was refused runs when the run goes on, even if nobody is asked any more; what was
    edited runs as it was edited; what was not decided is asked again."""
    ran = tmp_path / "ran"
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i s/1/42/ \"$1\"\n")
    editor.chmod(0o755)
    p = run(f"open({str(ran)!r}, 'w')", "done('it is 1')",
            env={"EDITOR": str(editor), "TMPDIR": str(tmp_path)})
    p.sees(ASK)
    p.types("n\n\n")
    p.sees(ASK)
    p.types("e\n")
    assert p.end(0)[0] == "it is 42"
    records = Journal(tmp_path / "run.rlm").records
    refused, edited = [r.position for r in records if r.kind == "gate" and r.get("answer")]
    last = next(r.position for r in records if r.get("type") == "done_output")
    for record in records[1:last]:
        copy = cut(tmp_path / "run.rlm", tmp_path / f"cut{record.position}.rlm", record.end)
        if record.position < edited:
            assert run_rlmflow("resume", copy, "-q").code == 3
        if record.position >= refused:
            r = run_rlmflow("resume", copy, "-q", "--approve", "none", "--restore", "replay")
            assert (r.code, r.stdout.strip()) == (0, "it is 42" if record.position >= edited else "it is 1")
        assert not ran.exists(), record
        replays(run_rlmflow, copy.parent, copy.name)
