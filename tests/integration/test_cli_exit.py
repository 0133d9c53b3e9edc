"""One rule of exit codes: what is refused before the first model call because of what the user gave is 2;
what goes wrong after that, or is the fault of the machine or of a server, is 1. A refusal says what is
refused, calls no model and leaves no run."""

import os
import shutil
import subprocess

import pytest
from replies import says


@pytest.fixture
def places(tmp_path):
    """Paths of things that are not what they should be."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    (tmp_path / "large").write_bytes(b"x" * 5000)
    (tmp_path / "text").write_text("# no script")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "outward").mkdir()
    (tmp_path / "outward" / "passwd").symlink_to("/etc/passwd")
    (tmp_path / "kept.rlm").mkdir()
    (tmp_path / "no-journal.rlm").mkdir()
    (tmp_path / "half.rlm").mkdir()
    (tmp_path / "half.rlm" / "journal").write_bytes(b"rubbish")
    return tmp_path


LONG = "n" * 300

# Flags of `run` (P: the places), and what stderr names.
REFUSED = [
    ("--input x=@P/missing", "P/missing"), ("--input x=@P/file/below", "P/file/below"),
    ("--input x=@P/loop", "P/loop"), (f"--input x=@P/{LONG}", LONG),
    ("--input x=@P/latin,encoding=utf-8", "at byte 3"), ("--input x=@P/file,encoding=ebcdic", "ebcdic"),
    ("--input x=@P/folder,encoding=latin-1", "encoding"), ("--input x=@P/outward", "passwd"),
    ("--input x=@P/large --max-input-size 4999", "5000"),
    ("--input x=@P/large,encoding=latin-1 --max-input-size 4999", "5000"),
    (f"--input x={LONG} --max-input-size 100", "300"), ("--input x=@/dev/zero --max-input-size 1m", "/dev/zero"),
    ("--input x", "NAME=VALUE"), ("--input x=1 --input x=2", '"x"'),
    ("--schema P/missing", "P/missing"), ("--schema P/folder", "P/folder"), ("--schema P/latin", "schema"),
    ("-o P/missing/run.rlm", "P/missing/run.rlm"), ("-o P/file/run.rlm", "P/file/run.rlm"),
    ("-o P/kept.rlm", "P/kept.rlm"), (f"-o P/{LONG}", LONG), ("-o P/loop/run.rlm", "P/loop/run.rlm"),
    ("--log-file P/missing/log", "P/missing/log"), ("--log-file P/folder", "P/folder"),
    ("--collect P/folder/a/b", "P/folder/a/b"), ("--collect P/file", "P/file"), ("--collect P", "P"),
    ("--cwd P/missing", "P/missing"), ("--cwd P/file", "P/file"),
    ("--python P/missing", "P/missing"), ("--python P/folder", "P/folder"), ("--python P/file", "P/file"),
    ("--model script:P/missing", "P/missing"), ("--model script:P/text", "P/text"),
    ("--model script:P/folder", "P/folder"), ("--child-model script:P/missing", "P/missing"),
    ("--model m --base-url nonsense", "http://"), ("--model m --base-url ftp://host", "http://"),
    ("--model m --body [1]", "body"), ("--model m --price x", "IN/OUT"),
    ("--model m --max-cost 1", "price"), ("--model m --ca-file P/missing", "P/missing"),
    ("--max-depth 65", "max_depth"), ("--max-output-tokens 1", "max_output_tokens"),
]


@pytest.mark.parametrize("flags, named", REFUSED)
def test_what_the_user_gave_is_refused_with_2(run_rlmflow, scripted_model, workspace, places, flags, named):
    words = [word.replace("P", str(places), 1) if "P/" in word or word == "P" else word
             for word in flags.split()]
    model = [] if "--model" in words else ["--model", scripted_model(says("done('ran')"))]
    r = run_rlmflow("run", "go", *model, *words, "--max-time", "20s", env={"OPENAI_API_KEY": "k"})
    assert (r.code, r.stdout) == (2, ""), r.stderr
    assert named.replace("P", str(places), 1) in r.stderr, r.stderr
    kept = workspace.state / "rlmflow" / "runs"
    assert not kept.exists() or not list(kept.iterdir())


@pytest.mark.parametrize("query, named", [
    ("", "empty"), ("@P/missing", "P/missing"), ("@P/folder", "P/folder"), ("@P/latin", "at byte 3"),
    ("@/dev/null", "empty"), ("@/dev/zero", "64.0 MiB"),
])
def test_a_query_that_cannot_be_is_refused_with_2(run_rlmflow, scripted_model, places, query, named):
    r = run_rlmflow("run", query.replace("P", str(places)), "--model", scripted_model(says("done(1)")))
    assert (r.code, r.stdout) == (2, "")
    assert named.replace("P", str(places)) in r.stderr


@pytest.mark.parametrize("what", ["missing", "file", "no-journal.rlm", "half.rlm", "loop"])
def test_a_run_that_is_none_is_refused_with_2(run_rlmflow, places, what):
    r = run_rlmflow("view", places / what)
    assert (r.code, r.stdout) == (2, "") and what in r.stderr


def test_a_file_that_is_no_run_is_called_so(run_rlmflow, places):
    r = run_rlmflow("view", places / "file")
    assert r.code == 2 and f"{places}/file is not a run" in r.stderr


def test_a_runtime_that_is_none_is_refused_with_those_there_are(run_rlmflow, scripted_model):
    r = run_rlmflow("run", "go", "--model", scripted_model(says("done(1)")), "--runtime", "docker:x")
    assert (r.code, r.stdout) == (2, "") and '"docker:x"; there is only subprocess' in r.stderr
    r = run_rlmflow("run", "go", "--model", "m", "--api", "x")
    assert r.code == 2 and "there are openai and anthropic" in r.stderr


def test_a_working_directory_that_is_gone_is_refused_with_2(workspace, scripted_model, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    args = [str(workspace.program), "run", "go", "--model", scripted_model(says("done(1)")), "-o",
            str(tmp_path / "run.rlm")]
    for more, code, named in ([], 2, "--cwd"), (["--cwd", str(tmp_path)], 0, "answered"):
        r = subprocess.run(["/bin/sh", "-c", 'cd "$0" && rmdir "$0" && "$@"; c=$?; mkdir "$0"; exit $c', gone,
                            *args, *more], capture_output=True, text=True, timeout=60,
                           env=workspace.environment())
        assert r.returncode == code and named in r.stderr, r.stderr
        assert (tmp_path / "run.rlm").exists() == (code == 0)


@pytest.mark.parametrize("env", [
    {"XDG_STATE_HOME": None, "HOME": None}, {"XDG_STATE_HOME": "/proc/none"},
    {"XDG_STATE_HOME": "/dev/null"}, {"RLMFLOW_MAX_DEPTH": "x"}, {"RLMFLOW_HEADER": "x"},
])
def test_an_environment_that_cannot_be_is_refused_with_2(run_rlmflow, scripted_model, server, env):
    model = ["--model", scripted_model(says("done(1)"))]
    if "RLMFLOW_HEADER" in env:
        model = ["--model", "m", "--base-url", server.base_url]
    r = run_rlmflow("run", "go", *model, env=env)
    assert (r.code, r.stdout) == (2, "") and r.stderr
    assert not server.requests


@pytest.mark.parametrize("content", ["max_depth = x", b"\xff", None])
def test_a_settings_file_that_cannot_be_read_is_refused_with_2(run_rlmflow, workspace, content):
    path = workspace.cwd / "rlmflow.toml"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    r = run_rlmflow("config")
    assert (r.code, r.stdout) == (2, "") and "./rlmflow.toml" in r.stderr


def test_what_may_not_be_read_is_refused_with_2(workspace, build_dir, tmp_path):
    """Root may read everything, so the program runs as somebody else, from a place open to all."""
    folder = tmp_path / "open"
    folder.mkdir()
    os.chmod(folder, 0o777)
    for above in (tmp_path, *tmp_path.parents):
        if above.stat().st_uid == os.geteuid() and above != above.parent and above.name != "tmp":
            os.chmod(above, above.stat().st_mode | 0o011)
    for name in ("rlmflow", "src/librlmflow.so.0"):
        shutil.copy(build_dir / name, folder)
    for name in ("secret", "locked"):
        (folder / name).write_text("x") if name == "secret" else (folder / name).mkdir()
        os.chmod(folder / name, 0)
    script = folder / "model.script"
    script.write_text("@reply\n```repl\ndone(1)\n```\n")
    other = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    for flags in (["--input", "x=@secret"], ["--input", "x=@locked"], ["--schema", "secret"],
                  ["-o", "locked/run.rlm"], ["--log-file", "secret"], ["--cwd", "locked"],
                  ["--collect", "locked/out"], ["--model", "script:secret"], ["--python", "./secret"]):
        r = subprocess.run(
            ["./rlmflow", "run", "go", "--model", f"script:{script}", "-o", "run.rlm", *flags],
            capture_output=True, timeout=60, cwd=folder, **other,
            env={**workspace.environment(), "LD_LIBRARY_PATH": str(folder), "XDG_CONFIG_HOME": str(folder)})
        assert (r.returncode, r.stdout) == (2, b""), (flags, r.stderr)
        assert flags[1].split("=@")[-1].removeprefix("script:").split("/")[0].encode() in r.stderr
        assert not (folder / "run.rlm").exists(), flags


@pytest.mark.parametrize("flags, script, named", [
    (["--max-iters", "1"], says("1"), "max_iters"),
    ([], [({"agent": "root", "error": 401}, "")], "key was refused"),
    (["--max-time", "300ms"], says("import time; time.sleep(60)"), "time"),
])
def test_what_goes_wrong_later_is_1(run_rlmflow, scripted_model, flags, script, named):
    r = run_rlmflow("run", "go", "--model", scripted_model(script), *flags)
    assert (r.code, r.stdout) == (1, "") and named in r.stderr


def test_a_machine_without_room_is_1(run_rlmflow, workspace, scripted_model):
    r = subprocess.run(["/bin/sh", "-c", 'ulimit -f 0; exec "$0" "$@"', str(workspace.program), "run", "go",
                        "--model", scripted_model(says("done(1)"))], capture_output=True, timeout=60,
                       env=workspace.environment(), cwd=workspace.cwd)
    assert r.returncode == 1 and b"too large" in r.stderr
