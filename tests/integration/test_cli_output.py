"""What a run prints, shows on a terminal, logs, keeps and collects; and how it is interrupted."""

import json
import os
import pty
import re
import shutil
import signal
import stat
import struct
import fcntl
import subprocess
import termios
import threading
import time

import pytest
from replies import FAMILY, cell, says

SLEEPS = says("print('started', flush=True)\nimport time\ntime.sleep(1000)")


# ---- --json, --quiet, --log-file ----

def test_json_is_one_event_a_line_and_the_result_last(run_rlmflow, scripted_model, tmp_path):
    run = tmp_path / "run.rlm"
    r = run_rlmflow("run", "go", "--model", scripted_model(FAMILY), "--json", "-o", run)
    assert r.code == 0
    lines = [json.loads(line) for line in r.stdout.splitlines()]
    result = lines.pop()
    assert set(result) == {"type", "answer", "reason", "usage", "agents", "run"}
    assert result["type"] == "result" and result["answer"] == "A+B" and result["reason"] == "answered"
    assert set(result["usage"]) == {"calls", "input_tokens", "output_tokens", "cost"}
    assert (result["usage"]["calls"], result["agents"], result["run"]) == (3, 3, str(run))
    assert lines[0]["type"] == "graph_created" and lines[0]["query"] == "go"
    assert [e["agent_id"] for e in lines if e["type"] == "add_child"] == ["root.a", "root.b"]
    nodes = [e["node"] for e in lines if e["type"] == "append_node" and e["agent_id"] == "root"]
    assert [n["type"] for n in nodes] == [
        "user_query", "llm_output", "exec_action", "supervising_output", "resume_action", "done_output"]
    assert nodes[3]["agents"] == ["root.a", "root.b"] and nodes[3]["call_id"] == nodes[4]["call_id"]
    assert nodes[5]["result"] == "A+B" and nodes[1]["usage"]["calls"] == 1
    # `view --json` shows the same nodes of the same run.
    viewed = [json.loads(line) for line in run_rlmflow("view", run, "--json").stdout.splitlines()]
    assert {e["node"]["id"]: e["node"] for e in viewed if e["type"] == "append_node"} == \
        {e["node"]["id"]: e["node"] for e in lines if e["type"] == "append_node"}
    assert viewed[-1] == result


def test_json_without_an_answer_has_null(run_rlmflow, scripted_model):
    r = run_rlmflow("run", "go", "--model", scripted_model(says("print(1)")), "--max-iters", "1", "--json")
    result = json.loads(r.stdout.splitlines()[-1])
    assert r.code == 1 and result["answer"] is None and result["reason"] == "max_iters"


def test_quiet_prints_only_the_answer(run_rlmflow, scripted_model):
    r = run_rlmflow("run", "go", "--model", scripted_model(FAMILY), "--quiet")
    assert (r.stdout, r.stderr) == ("A+B\n", "")
    r = run_rlmflow("run", "go", "--model", scripted_model(says("1")), "--max-iters", "1", "-q")
    assert r.code == 1 and r.stderr == "rlmflow: no answer after 1 turn (max_iters)\n"


def test_the_log_file_has_every_event_with_its_time(run_rlmflow, scripted_model, tmp_path):
    log = tmp_path / "events.log"
    for _ in range(2):  # the second run is appended
        r = run_rlmflow("run", "go", "--model", scripted_model(FAMILY), "--quiet", "--log-file", log)
        assert r.code == 0
    lines = log.read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z  ", line) for line in lines)
    assert sum("root: ended, answered: A+B" in line for line in lines) == 2
    assert any("root.a: is running" in line for line in lines)
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_text_of_agents_cannot_reach_the_terminal_unfiltered(run_rlmflow, scripted_model, tmp_path):
    evil = r"print('\x1b[31mred\x1b]0;title\x07\x9b2J\u202e' + 'x\rOK'); done('\x1b[2Jgone')"
    run = tmp_path / "run.rlm"
    r = run_rlmflow("run", "a\x1b[1mb", "--model", scripted_model(says(evil)), "-o", run)
    assert r.stdout == "\x1b[2Jgone\n"  # the answer is data and comes as it is
    views = [run_rlmflow("view", run, *flags).stdout for flags in
             ([], ["--agent", "root"], ["--usage"])]
    for text in [r.stderr, *views]:
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text), repr(text)
    assert "red" in views[1] and "gone" in views[0]


# ---- where runs are kept ----

def test_a_run_is_kept_under_the_state_directory(run_rlmflow, scripted_model, workspace):
    for _ in range(2):
        r = run_rlmflow("run", "How many errors?", "--model", scripted_model(says("done(1)")))
        assert r.code == 0
    runs = workspace.state / "rlmflow" / "runs"
    names = sorted(p.name for p in runs.iterdir())
    assert len(names) == 2
    assert all(re.fullmatch(r"\d{8}-\d{6}-errors(-2)?\.rlm", name) for name in names)
    assert re.search(rf"kept in {runs}/\S+\.rlm \(\d+\.\d KiB on disk\)", r.stderr)
    assert stat.S_IMODE(runs.stat().st_mode) == 0o700
    assert stat.S_IMODE((runs / names[0]).stat().st_mode) == 0o700
    for name in (names[0], names[0].removesuffix(".rlm")):
        assert "root  answered" in run_rlmflow("view", name).stdout


def test_an_existing_path_is_refused(run_rlmflow, scripted_model, tmp_path):
    (tmp_path / "run.rlm").mkdir()
    r = run_rlmflow("run", "go", "--model", scripted_model(says("done(1)")), "-o", tmp_path / "run.rlm")
    assert r.code == 2 and "run.rlm" in r.stderr and r.stdout == ""


def test_many_kept_gigabytes_bring_a_warning_with_the_command(run_rlmflow, scripted_model, workspace):
    model = scripted_model(says("done(1)"))
    assert "runs prune" not in run_rlmflow("run", "go", "--model", model).stderr
    old = workspace.state / "rlmflow" / "runs" / "old.rlm"
    old.mkdir()
    with open(old / "journal", "wb") as f:
        f.truncate(11 << 30)  # a hole: it takes no room
    r = run_rlmflow("run", "go", "--model", model)
    assert r.code == 0 and f"{old}, takes 11.0 GiB" in r.stderr and "`rlmflow runs prune --keep-size" in r.stderr
    shutil.rmtree(old)  # no run, which nobody should try to replay


# ---- --collect ----

@pytest.mark.replayed("recorded", "the code asks where it is, which is a temporary directory")
def test_collect_copies_what_agents_wrote(run_rlmflow, scripted_model, tmp_path):
    out = tmp_path / "out"
    code = ("import os\nos.makedirs('deep/er')\nopen('deep/er/f.bin', 'wb').write(b'a\\0b')\n"
            "open('run.sh', 'w').write('x'); os.chmod('run.sh', 0o755); os.symlink('/etc/passwd', 'link')\n"
            "done(os.getcwd())")
    r = run_rlmflow("run", "go", "--model", scripted_model(says(code)), "--collect", out)
    assert r.code == 0, r.stderr
    assert (out / "deep" / "er" / "f.bin").read_bytes() == b"a\0b"
    assert os.access(out / "run.sh", os.X_OK)
    assert sorted(p.name for p in out.iterdir()) == ["deep", "run.sh"]
    assert not os.path.exists(r.stdout.strip())  # the temporary directory is gone
    assert f"2 files in {out}" in r.stderr


def test_collect_with_a_directory_copies_what_is_new_or_changed(run_rlmflow, scripted_model, tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    for name in ("same", "changed"):
        (here / name).write_text("old")
    code = "open('changed', 'a').write('!'); open('new', 'w').write('n'); done('ok')"
    out = here / "out"
    r = run_rlmflow("run", "go", "--model", scripted_model(says(code)), "--cwd", here, "--collect", out,
                    "-o", here / "run.rlm")
    assert r.code == 0, r.stderr
    assert {p.name: p.read_text() for p in out.iterdir()} == {"changed": "old!", "new": "n"}


def files_below(path):
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_a_replay_of_a_run_that_collected_writes_nowhere(run_rlmflow, scripted_model, tmp_path):
    """Its cells run in another fresh directory, and what was collected may be gone."""
    out, run = tmp_path / "out", tmp_path / "run.rlm"
    code = "import os\nprint(os.listdir())\nopen('a', 'a').write('x')\ndone(open('a').read())"
    r = run_rlmflow("run", "go", "--model", scripted_model(says(code)), "--collect", out, "-o", run)
    assert r.stdout == "x\n" and files_below(out) == {"a": b"x"}, r.stderr
    for gone in (False, True):
        if gone:
            (out / "a").unlink()
            out.rmdir()
        before = files_below(tmp_path)
        for _ in range(2):
            r = run_rlmflow("replay", run, "--execute")
            assert r.code == 0 and "1 cell ran" in r.stderr, r.stderr
            assert files_below(tmp_path) == before and out.exists() != gone


def test_a_run_that_collected_goes_on_in_what_it_collected(run_rlmflow, scripted_model, workspace, tmp_path):
    """From wherever it is resumed, under a path that was given from elsewhere."""
    run, out = tmp_path / "run.rlm", workspace.cwd / "out"
    model = scripted_model([({"agent": "root", "turn": 1}, cell("open('a', 'w').write('x')")),
                            ({"agent": "root", "turn": 2}, cell("done(open('a').read())"))])
    r = run_rlmflow("run", "go", "--model", model, "--collect", "out", "-o", run, "--max-iters", "1")
    assert r.code == 1 and files_below(out) == {"a": b"x"}, r.stderr
    r = run_rlmflow("resume", run, "--max-iters", "3", cwd=tmp_path)
    assert r.stdout == "x\n", r.stderr


def test_a_kept_directory_is_found_from_elsewhere(run_rlmflow, scripted_model, workspace, tmp_path):
    run, here = tmp_path / "run.rlm", workspace.cwd / "here"
    here.mkdir()
    (here / "a").write_text("x")
    r = run_rlmflow("run", "go", "--model", scripted_model(says("done(open('a').read())")), "--cwd", "here",
                    "-o", run)
    assert r.stdout == "x\n", r.stderr
    r = run_rlmflow("replay", run, "--execute", cwd=tmp_path)
    assert r.code == 0, r.stderr


def test_collect_refuses_a_directory_with_something_in_it(run_rlmflow, scripted_model, tmp_path):
    (tmp_path / "mine").write_text("x")
    r = run_rlmflow("run", "go", "--model", scripted_model(says("done(1)")), "--collect", tmp_path)
    assert r.code == 2 and "empty" in r.stderr
    assert (tmp_path / "mine").read_text() == "x"


# ---- on a terminal ----

class Terminal:
    """The program with its stderr on a terminal of 60 columns and 10 lines."""

    def __init__(self, workspace, *args, rows=10, columns=60, env=None):
        self.control, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(side)
        self.side = side
        self.text = b""
        self.process = workspace.start_on(side, args, {"TERM": "xterm", **(env or {})})
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        while True:
            try:
                data = os.read(self.control, 65536)
            except OSError:
                return
            if not data:
                return
            self.text += data

    def wait_for(self, pattern, timeout_s=30):
        deadline = time.monotonic() + timeout_s
        while not re.search(pattern, self.text):
            assert time.monotonic() < deadline and self.process.poll() is None, self.text
            time.sleep(0.01)

    def press(self, key):
        os.write(self.control, key)

    def end(self, timeout_s=30):
        out = self.process.communicate(timeout=timeout_s)[0]
        after = termios.tcgetattr(self.side)
        os.close(self.side)
        self.reader.join(5)
        os.close(self.control)
        assert after == self.before
        return self.process.returncode, out


@pytest.fixture
def terminal(workspace):
    def start_on(side, args, env):
        def take_terminal():
            fcntl.ioctl(2, termios.TIOCSCTTY, 0)
        process = subprocess.Popen(
            [str(workspace.program), *map(str, args)], env=workspace.environment(env), cwd=workspace.cwd,
            stdin=side, stdout=subprocess.PIPE, stderr=side, start_new_session=True,
            preexec_fn=take_terminal)
        workspace._started.append(process)
        return process
    workspace.start_on = start_on
    return lambda *args, **options: Terminal(workspace, *args, **options)


def test_a_live_tree_is_drawn_in_place_and_clipped(terminal, scripted_model):
    script = [({"agent": "root", "turn": 1}, cell(
        'r = await launch_subagents([{"query": "a long task " * 20, "name": f"n{i}"} for i in range(30)])\n'
        'done("ok")')), ({"agent": "root.*", "delay": "300ms"}, cell('done("x")'))]
    t = terminal("run", "go", "--model", scripted_model(script))
    code, out = t.end()
    assert (code, out) == (0, b"ok\n")
    text = t.text.decode()
    assert re.search(r"\x1b\[\d+A\x1b\[J", text), text
    assert "more agents" in text and "at work" in text
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
    drawn = [line for line in plain.replace("\r", "").splitlines()
             if re.match(r"[├└│]─ n\d+", line)]
    assert drawn and max(map(len, drawn)) <= 59
    assert max(map(int, re.findall(r"\x1b\[(\d+)A", text))) <= 10


def test_a_dumb_terminal_gets_lines(terminal, scripted_model):
    t = terminal("run", "go", "--model", scripted_model(FAMILY), env={"TERM": "dumb"})
    assert t.end() == (0, b"A+B\n")
    assert b"\x1b" not in t.text and b"root: waits for 2 sub-agents" in t.text


def test_ctrl_c_once_ends_the_run_and_says_where_it_is(terminal, scripted_model, workspace, run_rlmflow):
    t = terminal("run", "go", "--model", scripted_model(SLEEPS))
    t.wait_for(rb"running")
    began = time.monotonic()
    t.press(b"\x03")
    code, out = t.end()
    assert (code, out) == (130, b"")
    assert time.monotonic() - began < 15  # the promise is 2 s; this only tells it from never
    assert b"interrupted" in t.text
    kept, = (workspace.state / "rlmflow" / "runs").iterdir()
    assert "unfinished" in run_rlmflow("view", kept).stdout


def test_ctrl_c_twice_ends_at_once_and_leaves_nothing(terminal, scripted_model, tmp_path):
    code = ("import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(1)")
    t = terminal("run", "go", "--model", scripted_model(says(code)), "--collect", tmp_path / "out")
    t.wait_for(rb"running")
    t.press(b"\x03\x03")
    assert t.end()[0] == 130


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_are_like_ctrl_c(start_rlmflow, scripted_model, number):
    process = start_rlmflow("run", "go", "--model", scripted_model(SLEEPS), "--json")
    while b'"exec_action"' not in process.stdout.readline():
        pass
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130 and b"interrupted" in err
    assert json.loads(out.splitlines()[-1])["reason"] == "interrupted"


def test_an_interrupt_does_not_wait_for_a_large_input(start_rlmflow, scripted_model, tmp_path):
    with open(tmp_path / "large", "wb") as f:
        f.truncate(64 << 30)  # a hole; reading it takes minutes
    process = start_rlmflow("run", "go", "--model", scripted_model(says("done(1)")),
                            "--input", f"x=@{tmp_path}/large", "--collect", tmp_path / "out")
    while b"runtime" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
