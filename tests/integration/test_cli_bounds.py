"""Limits of what comes from outside: the time a model's server may take, the size of inputs and the time
of taking them in."""

import os
import signal
import socket
import threading
import time

import pytest
from replies import cell, says

LENGTH = says('done(type(INPUTS["x"]).__name__ + " " + str(len(INPUTS["x"])))')


# ---- the time limits of a model ----

@pytest.fixture
def deaf():
    """The address of a listener whose queue is full: a connection is never made."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        others = []
        for _ in range(3):
            other = socket.socket()
            other.setblocking(False)
            other.connect_ex(listener.getsockname())
            others.append(other)
        yield "http://%s:%d/v1" % listener.getsockname()
        for other in others:
            other.close()


def given(how, name, value, workspace):
    """Flags and environment that set an option in one of the ways there are."""
    if how == "flag":
        return ["--" + name, value], {}
    if how == "environment":
        return [], {"RLMFLOW_" + name.upper().replace("-", "_"): value}
    (workspace.cwd / "rlmflow.toml").write_text(f'[model]\n{name.replace("-", "_")} = "{value}"\n')
    return [], {}


@pytest.mark.parametrize("how", ["flag", "environment", "file"])
@pytest.mark.parametrize("name, rule, said", [
    ("connect-timeout", None, "the connect timeout"),
    ("first-byte-timeout", {"first_byte_delay_ms": 60_000}, "the first-byte timeout"),
    ("idle-timeout", {"stall_after": 1}, "the idle timeout"),
])
def test_time_limits_of_a_model_reach_its_requests(run_rlmflow, workspace, server, deaf, how, name, rule, said):
    server.set_rules([{"reply": cell('done("late")'), **(rule or {})}])
    flags, env = given(how, name, "200ms", workspace)
    r = run_rlmflow("run", "go", "--model", "m", "--base-url", server.base_url if rule else deaf,
                    "--max-time", "5s", *flags, env=env)
    assert r.code == 1 and said in r.stderr and "0.2 s" in r.stderr, r.stderr


# ---- the size of inputs ----

def test_the_largest_input_that_is_allowed_is_taken(run_rlmflow, scripted_model, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100_000)
    model = scripted_model(LENGTH)
    r = run_rlmflow("run", "go", "--model", model, "--input", f"x=@{path}", "--max-input-size", "100000")
    assert (r.code, r.stdout) == (0, "str 100000\n"), r.stderr
    r = run_rlmflow("run", "go", "--model", model, "--input", f"x=@{path}", "--max-input-size", "99999")
    assert r.code == 2
    assert str(path) in r.stderr and "100000 bytes" in r.stderr and "99999" in r.stderr


def test_a_file_without_a_size_is_bounded_while_it_is_read(workspace, scripted_model):
    """The file says that it is empty, as those of /proc do, and has no end."""
    reader, writer = os.pipe()
    process = workspace.start("run", "go", "--model", scripted_model(LENGTH), "--input",
                              f"x=@/dev/fd/{reader}", "--max-input-size", "1m", pass_fds=[reader])
    os.close(reader)
    sent = 0
    try:
        while True:
            sent += os.write(writer, b"x" * 65536)
    except BrokenPipeError:
        os.close(writer)
    err = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 2 and "/dev/fd/" in err and "1048576" in err
    assert sent < 4 << 20


def test_a_file_of_a_directory_is_bounded_too(run_rlmflow, scripted_model, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "large").write_bytes(b"x" * 5000)
    (folder / "small").write_bytes(b"x")
    code = ('try: INPUTS["x"]["large"]\n'
            'except HostCallError as e: done(INPUTS["x"]["small"] + " " + str(e))')
    r = run_rlmflow("run", "go", "--model", scripted_model(says(code)), "--input", f"x=@{folder}",
                    "--max-input-size", "4999")
    assert r.code == 0 and r.stdout.startswith("x ") and "large" in r.stdout and "5000" in r.stdout, r.stderr


def test_a_pipe_can_have_an_encoding_and_be_bytes(workspace, scripted_model):
    for suffix, answer in (("", b"bytes 4\n"), (",encoding=latin-1", b"str 4\n")):
        reader, writer = os.pipe()
        os.write(writer, b"caf\xe9")
        os.close(writer)
        process = workspace.start("run", "go", "--model", scripted_model(LENGTH), "--input",
                                  f"x=@/dev/fd/{reader}{suffix}", pass_fds=[reader])
        os.close(reader)
        assert process.communicate(timeout=60)[0] == answer


def test_a_named_pipe_waits_for_its_writer(start_rlmflow, scripted_model, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = start_rlmflow("run", "go", "--model", scripted_model(LENGTH), "--input", f"x=@{pipe}")
    with open(pipe, "wb") as f:  # waits for the reader
        f.write(b"half")
        f.flush()
        time.sleep(0.1)
        f.write(b"half" * 50_000)
    assert process.communicate(timeout=60)[0] == b"str 200004\n"


# ---- the time of taking them in ----

@pytest.fixture(params=["huge", "pipe", "latin-1"])
def endless(request, tmp_path):
    """An input that takes minutes to read, or for ever."""
    path = tmp_path / "endless"
    if request.param == "pipe":
        os.mkfifo(path)
    else:
        with open(path, "wb") as f:
            f.truncate(64 << 30)  # a hole
    return f"x=@{path}" + (",encoding=latin-1" if request.param == "latin-1" else "")


def test_max_time_holds_while_inputs_are_taken_in(run_rlmflow, scripted_model, workspace, endless):
    began = time.monotonic()
    r = run_rlmflow("run", "go", "--model", scripted_model(LENGTH), "--input", endless,
                    "--max-input-size", "1t", "--max-time", "300ms", "--json")
    assert r.code == 1 and "no answer: time: max_time passed while the inputs" in r.stderr
    assert '"reason":"time"' in r.stdout
    assert time.monotonic() - began < 15  # minutes otherwise
    assert not list((workspace.state / "rlmflow" / "runs").iterdir())


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_ends_the_taking_in_at_once(start_rlmflow, scripted_model, workspace, endless, times):
    process = start_rlmflow("run", "go", "--model", scripted_model(LENGTH), "--input", endless,
                            "--max-input-size", "1t")
    while b"runtime" not in process.stderr.readline():
        pass
    time.sleep(0.2)
    began = time.monotonic()
    for _ in range(times):
        process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert time.monotonic() - began < 15
    if times == 1:
        assert b"interrupted while the inputs were taken in" in err
        assert not list((workspace.state / "rlmflow" / "runs").iterdir())


def test_an_interrupt_ends_the_reading_of_a_file_of_a_directory(start_rlmflow, scripted_model, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    with open(folder / "huge", "wb") as f:
        f.truncate(64 << 30)
    process = start_rlmflow("run", "go", "--model", scripted_model(says('INPUTS["x"]["huge"]')),
                            "--input", f"x=@{folder}", "--max-input-size", "1t")
    while b"turn 1" not in process.stderr.readline():
        pass
    threading.Timer(60, process.kill).start()
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and b"go on with" in err
