"""What the documents show, done as they show it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def blocks(path):
    """The fenced blocks of a document, as (name of the language, text)."""
    text = (ROOT / path).read_text()
    return [(m[2], m[3]) for m in re.finditer(r"^(`{3,})(\w*)\n(.*?)^\1$", text, re.M | re.S)]


def test_each_script_of_the_page_about_scripted_models_runs(run_rlmflow, scripted_model):
    """Each block that is a script is followed by one with the command and what it prints."""
    shown = blocks("docs/scripted-model.md")
    scripts = [i for i, (_, text) in enumerate(shown) if re.search("^@reply", text, re.M)]
    assert len(scripts) >= 2
    for i in scripts:
        command, answer = re.fullmatch(r"\$ (.+?)\n(.+)", shown[i + 1][1], re.S).groups()
        task = re.fullmatch(r'rlmflow run "([^"]*)" --model script:\S+ -q', command)[1]
        r = run_rlmflow("run", task, "--model", scripted_model(shown[i][1]), "-q")
        assert (r.code, r.stdout) == (0, answer), shown[i][1] + r.stderr


def test_the_message_that_the_page_shows_is_the_one_that_is_sent(run_rlmflow, server):
    from runs import mind
    message = next(text for _, text in blocks("docs/scripted-model.md") if text.startswith("Task: "))
    server.set_rules(mind({"2 \\+ 3": "done('5')"}))
    assert run_rlmflow("run", "2 + 3", "--model", "m", env={"OPENAI_BASE_URL": server.base_url}).code == 0
    assert server.requests[0].body["messages"][-1]["content"] == message.rstrip("\n")


def test_the_script_of_the_readme_runs(run_rlmflow, workspace, monkeypatch):
    """The commands of the README that need no key, pasted into a shell."""
    import subprocess
    text = next(text for _, text in blocks("README.md") if "script:" in text)
    env = workspace.environment({"PATH": f"{workspace.program.parent}:/usr/bin:/bin"})
    r = subprocess.run(["/bin/sh", "-e", "-c", text], env=env, cwd=workspace.cwd, capture_output=True, text=True,
                       timeout=60)
    assert (r.returncode, r.stdout) == (0, "3 lines\n"), r.stderr


@pytest.mark.parametrize("path", sorted(p.relative_to(ROOT) for p in [ROOT / "README.md", *ROOT.glob("docs/*.md")]))
def test_links_between_documents_lead_somewhere(path):
    for link in re.findall(r"\]\(([^)#:]+)\)", (ROOT / path).read_text()):
        assert (ROOT / path).parent.joinpath(link).exists(), link
