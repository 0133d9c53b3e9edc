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


def check_runtime(build_dir, workspace, *command):
    """Its exit code, and what it says of each check by name."""
    done = subprocess.run([build_dir / "examples" / "check_runtime", *command], capture_output=True, text=True,
                          env=workspace.environment(), cwd=workspace.cwd, timeout=300)
    assert done.stderr == ("" if command else "usage: check_runtime COMMAND [ARG...]\n")
    return done.returncode, dict(line.split(maxsplit=1) for line in done.stdout.splitlines())


def test_check_runtime_passes_a_sound_runtime_and_tells_what_another_breaks(build_dir, workspace):
    code, said = check_runtime(build_dir, workspace, "sh", "-c", "{worker}")
    assert code == 0 and set(said.values()) == {"ok"} and len(said) > 15
    code, broken = check_runtime(build_dir, workspace, "false")
    assert code == 1 and list(broken) == list(said) and broken["leaks"] == "ok"
    assert "exit status 1" in broken["start"]
    assert check_runtime(build_dir, workspace) == (2, {})
