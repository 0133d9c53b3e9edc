"""What hostile or clumsy users give the program: pipes where files belong, readers that do not read,
directories that are gone. Nothing may hang, or be impossible to interrupt."""

import os
import signal
import subprocess
import time

import pytest
from replies import says

LONG = says("done('n' * 300_000)")


def test_a_log_that_nobody_reads_is_refused(run_rlmflow, scripted_model, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    r = run_rlmflow("run", "go", "--model", scripted_model(says("done(1)")), "--log-file", tmp_path / "pipe",
                    timeout=20)
    assert (r.code, r.stdout) == (2, "") and "nobody reads" in r.stderr


def test_a_log_that_is_full_holds_nothing_up(run_rlmflow, scripted_model, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    script = says("done('x' * 100_000)")
    for _ in range(20):  # a line has up to 4,000 columns, the pipe 64 KiB
        r = run_rlmflow("run", "go", "--model", scripted_model(script), "--log-file", tmp_path / "pipe", "-q",
                        timeout=20)
        assert r.code == 0 and len(r.stdout) == 100_001
    os.close(reader)
    assert "writing to the log file" in r.stderr


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/dev/zero", path)])
def test_settings_that_are_no_file_are_not_read(run_rlmflow, workspace, make):
    make(workspace.cwd / "rlmflow.toml")
    r = run_rlmflow("config", timeout=20)
    assert r.code == 0 and "is not read" in r.stderr


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_reader_that_does_not_read_cannot_prevent_an_interrupt(workspace, scripted_model, tmp_path, stream):
    """The pipe is full before the program starts."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: writer}
    run = tmp_path / "run.rlm"
    process = subprocess.Popen(
        [str(workspace.program), "run", "go", "--model", scripted_model(LONG), "--json", "-o", str(run)],
        stdin=subprocess.DEVNULL, env=workspace.environment(), cwd=workspace.cwd, **pipes)
    os.close(writer)
    workspace._started.append(process)
    time.sleep(0.5)
    assert process.poll() is None  # it waits for the reader
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 130
    os.close(reader)


@pytest.mark.parametrize("flags", [
    ["@PIPE", "--model", "script:SCRIPT"], ["go", "--model", "script:PIPE"],
    ["go", "--model", "script:SCRIPT", "--schema", "PIPE"],
    ["go", "--model", "script:SCRIPT", "--input", "x=@PIPE"],
    ["go", "--model", "script:SCRIPT", "--child-model", "script:PIPE"],
])
def test_a_pipe_that_nobody_writes_can_be_interrupted(start_rlmflow, scripted_model, tmp_path, flags):
    os.mkfifo(tmp_path / "pipe")
    script = scripted_model(says("done(1)")).removeprefix("script:")
    process = start_rlmflow("run", *[f.replace("PIPE", str(tmp_path / "pipe")).replace("SCRIPT", script)
                                     for f in flags])
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) in (130, -signal.SIGINT)


def test_output_waits_for_a_slow_reader(workspace, scripted_model):
    for blocking in (True, False):
        reader, writer = os.pipe()
        os.set_blocking(writer, blocking)
        process = subprocess.Popen(
            [str(workspace.program), "run", "go", "--model", scripted_model(LONG), "-q"], stdout=writer,
            stdin=subprocess.DEVNULL, env=workspace.environment(), cwd=workspace.cwd)
        os.close(writer)
        workspace._started.append(process)
        time.sleep(0.3)
        with open(reader, "rb") as f:
            assert len(f.read()) == 300_001
        assert process.wait(timeout=20) == 0


def test_a_working_directory_that_is_gone(workspace, scripted_model, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    model = scripted_model(says("done(1)"))
    for command in ("config", "doctor", f"run go --model {model} -o run.rlm", f"run go --model {model} -q"):
        r = subprocess.run(["/bin/sh", "-c", f'cd {gone}; rmdir {gone}; exec "$0" {command}',
                            str(workspace.program)], capture_output=True, timeout=30,
                           env=workspace.environment())
        assert r.returncode in (0, 1, 2) and (r.returncode == 0 or r.stdout + r.stderr)
        gone.mkdir(exist_ok=True)


@pytest.mark.parametrize("env", [
    {"TERM": "odd\x1b[31m"}, {"LC_ALL": "de_DE.ISO-8859-1"}, {"LANG": "xx"}, {"COLUMNS": "-1"},
    {"HOME": "relative"}, {"PATH": None}, {"TMPDIR": "/nonexistent"}, {"XDG_CONFIG_HOME": "/dev/null"},
])
def test_an_odd_environment_does_no_harm(run_rlmflow, scripted_model, env):
    r = run_rlmflow("run", "grüße", "--model", scripted_model(says("done('ü')")), "-q", env=env)
    assert (r.code, r.stdout, r.stderr) == (0, "ü\n", "")
