"""Disks that are full, files that may not grow, and run directories that vanish: a message that says
what could not be written and where, never a crash; what was written before stays readable."""

import resource
import subprocess

import pytest
from program import Result
from runs import command, go, look, mind  # noqa: F401

MIB = 1 << 20
REASONS = {"full disk": "No space left on device", "file limit": "File too large"}

pytestmark = pytest.mark.replayed("never", "what these runs leave is damaged")


@pytest.fixture(params=REASONS)
def short_disk(request, workspace, run_rlmflow):
    """short_disk(args): runs the program where a run of more than 1 MiB cannot be kept, on a small
    tmpfs in a mount namespace of its own, or with RLIMIT_FSIZE; (Result, the events that view shows of
    what was kept or None, the reason that messages give)."""
    disk, kept = workspace.base / "disk", workspace.base / "kept"
    disk.mkdir()

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB))

    def run(args):
        args = list(args)
        args[args.index("-o") + 1] = disk / "run.rlm"
        script, before_exec = 'mount -t tmpfs -o size=1m none "$0" && "$@"', None
        before = ["unshare", "-rm"]
        if request.param == "file limit":
            script, before_exec, before = '"$@"', limit, []
        script += f'; code=$?; [ ! -e "$0/run.rlm" ] || cp -r "$0/run.rlm" "{kept}"; exit $code'
        done = subprocess.run(
            [*before, "sh", "-c", script, disk, workspace.program, *map(str, args)],
            env=workspace.environment(), cwd=workspace.cwd, capture_output=True, timeout=60,
            preexec_fn=before_exec)
        result = Result(done.stdout, done.stderr, done.returncode)
        if not kept.exists():
            return result, None, REASONS[request.param]
        view = run_rlmflow("view", kept, "--json")
        assert view.code == 0 and not view.stderr, (view.stderr, done.stderr)
        return result, view.stdout, REASONS[request.param]

    return run


def test_a_journal_that_can_grow_no_more_ends_the_run(short_disk, server, command):
    server.set_rules(mind({"go": "print('x' * 60_000)"}))
    args, _ = command(server, "--max-iters", "100")
    result, shown, reason = short_disk(args)
    assert result.code == 1 and result.stdout == "", result.stderr
    last = result.stderr.splitlines()[-1]
    assert reason in last and "run.rlm" in last, last
    assert 10 <= shown.count('"type":"exec_output"') < 20


@pytest.mark.parametrize("code", ["print('x' * 3_000_000)", "print(len(await llm_query('q')))"],
                         ids=["output", "reply"])
def test_a_blob_of_the_engines_own_that_cannot_be_written_ends_the_run(short_disk, server, command, code):
    server.set_rules(mind({"go": ["print('written before')", code, "done('never')"]}, query={
        "reply": "z" * 3_000_000, "chunks": MIB, "ignore_max_tokens": True}))
    result, shown, reason = short_disk(command(server)[0])
    assert (result.code, result.stdout) == (1, ""), result.stderr
    last = result.stderr.splitlines()[-1]
    assert "writing a blob" in last and "run.rlm/blobs" in last and reason in last, last
    assert "written before" in shown and shown.count('"type":"exec_action"') == 2


@pytest.mark.parametrize("code", [
    "await launch_subagents([{'query': 'work', 'inputs': {'t': 'y' * 3_000_000}}])",
    "await llm_query('q' * 3_000_000)", "done('a' * 3_000_000)",
], ids=["input of a child", "prompt", "answer"])
def test_a_blob_of_a_session_that_cannot_be_written_ends_the_run(short_disk, server, command, code):
    """Nothing was started, and no agent was told of a path of the host."""
    server.set_rules(mind({"go": [code, "done('with less')"], "work": "done(1)"}))
    result, shown, reason = short_disk(command(server)[0])
    assert (result.code, result.stdout) == (1, ""), result.stderr
    last = result.stderr.splitlines()[-1]
    assert "failed: a value of root: writing a blob" in last and "run.rlm/blobs" in last, last
    assert reason in last and "error_output" not in shown and "add_child" not in shown
    assert server.stats()["requests"] == 1


def test_a_file_of_an_input_that_does_not_fit_when_it_is_read_ends_the_run(
        short_disk, server, command, tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "big").write_bytes(b"x" * 3_000_000)
    server.set_rules(mind({"go": ["print(len(d['big']))", "done('with less')"]}))
    args, _ = command(server, "--input", f"d=@{tmp_path / 'files'}")
    result, shown, reason = short_disk(args)
    last = result.stderr.splitlines()[-1]
    assert (result.code, result.stdout) == (1, ""), result.stderr
    assert "writing a blob" in last and reason in last and "error_output" not in shown, last


def test_an_input_that_does_not_fit_ends_the_run_before_it_begins(short_disk, server, command, tmp_path):
    (tmp_path / "big").write_bytes(b"x" * 3_000_000)
    server.set_rules(mind({"go": "done(len(big))"}))
    args, _ = command(server, "--input", f"big=@{tmp_path / 'big'}")
    result, shown, reason = short_disk(args)
    last = result.stderr.splitlines()[-1]
    assert (result.code, result.stdout, shown) == (1, "", None), result.stderr
    assert "input big" in last and "writing a blob" in last and reason in last, last
    assert server.stats()["requests"] == 0


def test_what_a_worker_maps_and_does_not_fit_is_a_failure_that_says_so(workspace, server, command, tmp_path):
    """3 MB of UTF-8 are 4 MB in memory, which a disk of 5 MiB has no room for beside them."""
    (tmp_path / "text").write_text("a\u0431" * 1_000_000)
    server.set_rules(mind({"go": "done(len(text))"}))
    args, _ = command(server, "--input", f"text=@{tmp_path / 'text'}")
    disk = workspace.base / "disk"
    disk.mkdir()
    args[args.index("-o") + 1] = disk / "run.rlm"
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=5m none "$0" && "$@"', disk, workspace.program,
         *map(str, args)], env=workspace.environment(), cwd=workspace.cwd, capture_output=True, text=True,
        timeout=60)
    last = done.stderr.splitlines()[-1]
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert "writing the 4000000 bytes" in last and REASONS["full disk"] in last, last


def test_a_directory_that_cannot_be_written(run_rlmflow, server, command):
    server.set_rules(mind({"go": "done(1)"}))
    args, _ = command(server)
    args[args.index("-o") + 1] = "/proc/run.rlm"
    r = run_rlmflow(*args)
    assert r.code in (1, 2) and "/proc/run.rlm" in r.stderr and server.stats()["requests"] == 0


@pytest.mark.parametrize("use", ["done(big)", "r = await llm_query(big)\nprint(r)"], ids=["answer", "prompt"])
def test_a_blob_that_is_gone_when_it_is_read_fails_the_run(run_rlmflow, look, server, command, tmp_path, use):
    (tmp_path / "big").write_bytes(b"x" * 300_000)
    args, path = command(server, "--input", f"big=@{tmp_path / 'big'}")
    gone = f"import pathlib\nfor f in pathlib.Path({str(path / 'blobs')!r}).iterdir(): f.unlink()\n"
    server.set_rules(mind({"go": [gone + use, "done('never')"]}))
    r = run_rlmflow(*args)
    last = r.stderr.splitlines()[-1]
    assert (r.code, r.stdout) == (1, "") and "failed: " in last, r.stderr
    assert server.stats()["requests"] == 1


@pytest.mark.parametrize("then", ["", "\nimport os; os.mkdir(p); open(p + '/journal', 'w')"],
                         ids=["removed", "replaced"])
def test_a_run_that_was_not_kept_is_no_success(run_rlmflow, server, command, then):
    args, path = command(server)
    server.set_rules(mind({"go": f"import shutil\np = {str(path)!r}\nshutil.rmtree(p){then}\ndone(1)"}))
    r = run_rlmflow(*args)
    assert (r.code, r.stdout) == (1, "1\n"), r.stderr
    assert f"the run is not kept: {path}/journal was {'replaced' if then else 'removed'}" in r.stderr.splitlines()[-1]
    assert "kept in" not in r.stderr


@pytest.mark.parametrize("what", ["", "/blobs"], ids=["all of it", "its blobs"])
def test_a_run_directory_that_vanishes_fails_what_needs_it(run_rlmflow, server, command, what):
    args, path = command(server)
    vanish = f"import shutil\nshutil.rmtree({str(path) + what!r})\nprint('gone')"
    server.set_rules(mind({"go": [vanish, "print('x' * 100_000)", "done('never')"]}))
    r = run_rlmflow(*args)
    last = r.stderr.splitlines()[-1]
    assert (r.code, r.stdout) == (1, "") and f"{path}/blobs was removed while it was in use" in last, r.stderr
    assert server.stats()["requests"] == 2 and path.exists() == bool(what)
