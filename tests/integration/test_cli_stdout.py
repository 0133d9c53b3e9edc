"""What is printed on stdout is the result: a program that cannot print it says so, keeps the run and
fails; a reader that has gone ends it as SIGPIPE would."""

import json
import os
import signal
import subprocess

import pytest
from replies import FAMILY, cell, says

BYTES = 300_000
LONG = says(f"done('n' * {BYTES})")
COMMANDS = ("--help", "--version", "help run", "run --help", "version", "config", "doctor", "view RUN",
            "view RUN --json", "view RUN --agent root", "view RUN --usage")


@pytest.fixture
def kept(run_rlmflow, scripted_model, tmp_path):
    """A run with an answer that no buffer holds."""
    path = tmp_path / "kept.rlm"
    r = run_rlmflow("run", "go", "--model", scripted_model(LONG), "-o", path, "-q")
    assert r.code == 0 and len(r.stdout) == BYTES + 1
    return path


@pytest.fixture
def into(workspace):
    """into(how, *args, env=None): the program with its stdout closed ("closed"), on a full disk ("full")
    or in a pipe that nobody reads ("gone"); (exit code, stderr)."""
    def run(how, *args, preexec_fn=None):
        if how == "gone":
            reader, out = os.pipe()
            os.close(reader)
        else:
            out = os.open("/dev/full", os.O_WRONLY)

        def prepare():
            if how == "closed":
                os.close(1)
            if preexec_fn:
                preexec_fn()
        process = subprocess.Popen([str(workspace.program), *map(str, args)], stdin=subprocess.DEVNULL,
                                   stdout=out, stderr=subprocess.PIPE, env=workspace.environment(),
                                   cwd=workspace.cwd, preexec_fn=prepare)
        os.close(out)
        workspace._started.append(process)
        err = process.communicate(timeout=60)[1].decode()
        return process.returncode, err
    return run


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("how, why", [("closed", "Bad file descriptor"), ("full", "No space left")])
def test_every_command_fails_when_its_output_is_lost(into, kept, command, how, why):
    code, err = into(how, *command.replace("RUN", str(kept)).split())
    assert code == 1 and f"writing to stdout: {why}" in err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_has_gone_ends_every_command_quietly(into, kept, command):
    assert into("gone", *command.replace("RUN", str(kept)).split()) == (-signal.SIGPIPE, "")


def test_with_sigpipe_ignored_a_reader_that_has_gone_is_an_error(into, kept):
    code, err = into("gone", "view", kept,
                     preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN))
    assert code == 1 and "writing to stdout: Broken pipe" in err


@pytest.mark.parametrize("how", ["closed", "full"])
@pytest.mark.parametrize("flags", [[], ["--json"], ["-q"]])
def test_an_answer_that_cannot_be_printed_is_found_in_the_run(into, run_rlmflow, workspace, scripted_model,
                                                              tmp_path, how, flags):
    path = tmp_path / "run.rlm"
    code, err = into(how, "run", "go", "--model", scripted_model(FAMILY), "-o", path, *flags)
    assert code == 1 and "writing to stdout: " in err
    assert f"the answer stands in the run: {workspace.program} view {path}" in err
    assert run_rlmflow("view", path).stdout.endswith("\nA+B\n")


def test_a_full_disk_does_not_hide_why_there_is_no_answer(into, scripted_model):
    code, err = into("full", "run", "go", "--model", scripted_model(says("1")), "--json", "--max-iters", "1")
    assert code == 1 and "writing to stdout: " in err and "no answer after 1 turn (max_iters)" in err


def test_nobody_reads_the_answer_but_the_run_is_kept(into, run_rlmflow, scripted_model, tmp_path):
    path = tmp_path / "run.rlm"
    code, err = into("gone", "run", "go", "--model", scripted_model(FAMILY), "-o", path)
    assert code == -signal.SIGPIPE and f"kept in {path}" in err and "rlmflow: " not in err
    assert run_rlmflow("view", path).stdout.endswith("\nA+B\n")
    code, err = into("gone", "run", "go", "--model", scripted_model(FAMILY), "-q")
    assert (code, err) == (-signal.SIGPIPE, "")


def test_events_that_nobody_reads_any_more_end_the_run_as_ctrl_c_does(workspace, run_rlmflow,
                                                                      scripted_model, tmp_path):
    path = tmp_path / "run.rlm"
    script = [({"agent": "root", "turn": 1}, cell("print('first', flush=True)")),
              ({"agent": "root", "delay": "300ms"}, cell("import time; time.sleep(1000)"))]
    process = workspace.start("run", "go", "--model", scripted_model(script), "--json", "-o", path)
    assert json.loads(process.stdout.readline())["type"] == "graph_created"
    process.stdout.close()
    process.stdout = None
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGPIPE and f"kept in {path}".encode() in err
    assert "unfinished" in run_rlmflow("view", path).stdout


def test_output_has_no_hole(into, workspace, kept):
    """A file that may not grow takes the first bytes and nothing after them."""
    out = workspace.base / "out"
    with open(out, "wb") as f:
        r = subprocess.run(["/bin/sh", "-c", 'ulimit -f 40; exec "$0" "$@"', str(workspace.program), "view",
                            str(kept), "--json"], stdout=f, stderr=subprocess.PIPE, timeout=60,
                           env=workspace.environment(), cwd=workspace.cwd)
    assert r.returncode == 1 and b"File too large" in r.stderr
    whole = subprocess.run([str(workspace.program), "view", str(kept), "--json"], capture_output=True,
                           env=workspace.environment(), cwd=workspace.cwd, timeout=60).stdout
    written = out.read_bytes()
    assert 0 < len(written) < len(whole) and whole.startswith(written)


@pytest.mark.parametrize("closing", ["<&-", "2>&-", "<&- 2>&-"])
def test_other_closed_descriptors_do_no_harm(workspace, scripted_model, closing):
    command = f'exec "$0" run go --model {scripted_model(says("done(1)"))} {closing}'
    r = subprocess.run(["/bin/sh", "-c", command, str(workspace.program)], timeout=60,
                       capture_output=True, env=workspace.environment(), cwd=workspace.cwd)
    assert (r.returncode, r.stdout) == (0, b"1\n"), r.stderr


def test_a_query_from_a_closed_stdin_is_refused(workspace, scripted_model):
    command = f'exec "$0" run - --model {scripted_model(says("done(1)"))} <&-'
    r = subprocess.run(["/bin/sh", "-c", command, str(workspace.program)], timeout=60,
                       capture_output=True, env=workspace.environment(), cwd=workspace.cwd)
    assert r.returncode == 2 and b"reading stdin: Bad file descriptor" in r.stderr
