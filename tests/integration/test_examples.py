"""The programs of examples/ as a reader would use them."""

import subprocess

import pytest
from replies import says
from runs import mind

CODE = "r, = await launch_subagents([{'query': 'turn', 'inputs': {'t': text}}])\ndone(r)"
TURN = "done(t[::-1])"


@pytest.fixture
def minimal(build_dir, workspace):
    """minimal(*args, env=None): runs examples/minimal and returns the CompletedProcess."""
    def run(*args, env=None):
        # It ends without freeing all that the operating system frees for it.
        leaks = ":".join(filter(None, [workspace.environment().get("ASAN_OPTIONS"), "detect_leaks=0"]))
        return subprocess.run([build_dir / "examples" / "minimal", *args], capture_output=True, text=True,
                              env=workspace.environment({"ASAN_OPTIONS": leaks, **(env or {})}),
                              cwd=workspace.cwd, timeout=60)

    return run


def test_minimal_runs_an_agent_over_a_file(minimal, server, tmp_path):
    server.set_rules(mind({"Turn it": CODE, "turn": TURN}))
    (tmp_path / "file").write_text("olleh")
    r = minimal("Turn it.", tmp_path / "file", "some-model",
                env={"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-minimal"})
    assert (r.returncode, r.stdout) == (0, "answered: hello \n"), r.stderr
    assert [q.body["model"] for q in server.requests] == ["some-model"] * 2
    assert all("Bearer sk-minimal" in str(q.headers) for q in server.requests)


def test_minimal_runs_a_script(minimal, scripted_model, tmp_path):
    (tmp_path / "file").write_text("olleh")
    r = minimal("Turn it.", tmp_path / "file", scripted_model(says("done(text[::-1])")))
    assert (r.returncode, r.stdout) == (0, "answered: hello \n"), r.stderr


def test_minimal_says_what_is_wrong(minimal, scripted_model, server, tmp_path):
    assert "usage: minimal" in minimal().stderr and minimal().returncode == 2
    r = minimal("Turn it.", tmp_path / "missing", scripted_model(says("done(1)")))
    assert "missing" in r.stdout + r.stderr and "answered" not in r.stdout and r.returncode == 1
    (tmp_path / "file").write_text("x")
    server.set_rules([{"status": 401}])
    r = minimal("Turn it.", tmp_path / "file", "m", env={"OPENAI_BASE_URL": server.base_url})
    assert r.stdout.startswith("failed:") and "401" in r.stdout and r.returncode == 1
