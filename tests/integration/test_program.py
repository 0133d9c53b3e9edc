"""The harness itself: it must see what a run leaves behind. The program here is a stand-in."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent

# The stand-in does what its first argument says.
STAND_IN = r"""#!/usr/bin/python3
import os, subprocess, sys
what, rest = sys.argv[1], sys.argv[2:]
if what == "echo":
    sys.stdout.write(sys.stdin.read() + " ".join(rest)); sys.stderr.write("noted"); sys.exit(3)
if what == "environment":
    print("\n".join(f"{k}={v}" for k, v in sorted(os.environ.items())))
if what == "leave-process":
    subprocess.Popen(["sleep", "1000"], start_new_session=True, stdin=subprocess.DEVNULL,
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
if what == "leave-family":
    subprocess.Popen(["sh", "-c", "sleep 1000 >&2 & echo ready; wait"], start_new_session=True,
                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                     stderr=subprocess.DEVNULL).stdout.readline()
if what == "leave-unmarked":
    subprocess.Popen(["/bin/sleep", "1000"], start_new_session=True, env={},
                     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                     stderr=subprocess.DEVNULL)
if what == "leave-file":
    open(os.path.join(os.environ["TMPDIR"], "left"), "w").close()
if what == "ignored":
    ignored = int(open("/proc/self/status").read().split("SigIgn:")[1].split()[0], 16)
    print([n for n in (2, 3) if ignored >> (n - 1) & 1])
if what == "hang":
    print("before", flush=True); subprocess.run(["sleep", "1000"])
"""


@pytest.fixture
def run_inner(tmp_path):
    """Runs a test body, with the fixtures of conftest.py and the stand-in, in a pytest of its own;
    returns (exit code, output)."""
    build = tmp_path / "fake-build"
    build.mkdir()
    (build / "rlmflow").write_text(STAND_IN)
    (build / "rlmflow").chmod(0o755)

    def run(body, before=None):
        folder = tmp_path / "inner"
        folder.mkdir()
        (folder / "test_inner.py").write_text(
            "import program\nprogram.GRACE_S = 0.5\n"
            "def test_inner(run_rlmflow, workspace):\n    " + body + "\n")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "conftest",
             str(folder)],
            env={**os.environ, "RLMFLOW_BUILD": str(build), "PYTHONPATH": str(HERE)}, cwd=folder,
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=before)
        return done.returncode, done.stdout

    return run


def test_result_carries_output_and_code(run_inner):
    code, output = run_inner(
        "r = run_rlmflow('echo', 'a', 'b', input='in '); "
        "assert (r.stdout, r.stderr, r.code) == ('in a b', 'noted', 3)")
    assert code == 0, output


def test_environment_is_clean(run_inner, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "leaks")
    code, output = run_inner(
        "r = run_rlmflow('environment', env={'EXTRA': '1', 'LANG': None}); "
        "e = dict(l.split('=', 1) for l in r.stdout.splitlines()); "
        "assert e['TMPDIR'] == str(workspace.tmp) and e['XDG_STATE_HOME'] == str(workspace.state); "
        "assert e['EXTRA'] == '1' and 'OPENAI_API_KEY' not in e; "
        "assert e['RLMFLOW_TEST_ID'] == workspace.test_id")
    assert code == 0, output


@pytest.mark.parametrize("what", ["leave-process", "leave-unmarked"])
def test_left_process_fails_the_test_and_is_killed(run_inner, what):
    code, output = run_inner(f"run_rlmflow({what!r})")
    assert code == 1 and "a process is left" in output and "sleep 1000" in output, output
    pid = output.split("a process is left: ")[1].split(":")[0]
    assert not Path(f"/proc/{pid}/exe").exists() or "sleep" not in os.readlink(f"/proc/{pid}/exe")


def test_whole_family_left_is_found(run_inner):
    code, output = run_inner("run_rlmflow('leave-family')")
    pids = {part.split(":")[0] for part in output.split("a process is left: ")[1:]}
    assert code == 1 and len(pids) == 2, output
    for pid in pids:
        link = Path(f"/proc/{pid}/exe")
        assert not link.exists() or "sleep" not in os.readlink(link)


def test_signals_that_the_caller_ignores_reach_the_program(run_inner):
    """A shell's job in the background ignores SIGINT and SIGQUIT."""
    def ignore():
        for number in (signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)

    code, output = run_inner("r = run_rlmflow('ignored'); assert r.stdout == '[]\\n', r", ignore)
    assert code == 0, output


def test_left_file_fails_the_test(run_inner):
    code, output = run_inner("run_rlmflow('leave-file')")
    assert code == 1 and "a file is left in the test's tmp: left" in output, output


def test_hang_fails_with_what_was_printed(run_inner):
    code, output = run_inner("run_rlmflow('hang', timeout=1)")
    assert code == 1 and "did not end within 1 s" in output and "before" in output, output
    assert "a process is left" not in output, output


def test_missing_program_fails(run_inner, tmp_path):
    (tmp_path / "fake-build" / "rlmflow").unlink()
    code, output = run_inner("pass")
    assert code == 1 and "build it first" in output, output


def test_script_text(scripted_model):
    name = scripted_model([
        ({"agent": "root", "turn": 1}, "one\n@reply x\n@@comment\n@replying\n"),
        ({"match": 'say "hi"', "delay": "5ms"}, "two")])
    assert name.startswith("script:")
    assert Path(name.removeprefix("script:")).read_text() == (
        "@reply agent=root turn=1\none\n@@reply x\n@@@comment\n@replying\n\n"
        '@reply match="say \\"hi\\"" delay=5ms\ntwo\n')


def test_what_a_sanitizer_finds_is_a_problem(workspace):
    finding = workspace.base / "sanitizer.1"
    finding.write_text("LeakSanitizer: detected memory leaks")
    assert workspace.problems() == ["a sanitizer says: LeakSanitizer: detected memory leaks"]
    finding.unlink()
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS"):
        assert workspace.environment()[name].endswith(f"log_path={workspace.base}/sanitizer")
