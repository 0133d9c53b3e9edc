"""Runs that earlier versions wrote stay readable: tests/data/runs/VERSION, made by make.py there with the
program of that version. A version that writes runs in another way adds a directory; none is changed."""

import json
import shutil
from pathlib import Path

import pytest
from journal import Journal

DATA = Path(__file__).resolve().parents[1] / "data" / "runs"
VERSIONS = sorted(p.name for p in DATA.iterdir() if (p / "expected.json").exists())
RUNS = ["answered.rlm", "limited.rlm", "stopped.rlm"]


@pytest.fixture(params=VERSIONS)
def old(request, tmp_path):
    """A copy of the runs of a version."""
    shutil.copytree(DATA / request.param, tmp_path / "old")
    return tmp_path / "old"


def expected(old):
    return json.loads((old / "expected.json").read_text())


def test_there_are_runs_of_the_first_version():
    assert "0.1" in VERSIONS


@pytest.mark.parametrize("name", RUNS)
def test_no_path_of_a_machine_is_in_them(old, name):
    text = (old / name / "journal").read_bytes()
    for word in (b"/work", b"/tmp", b"/home", b"/root/"):
        assert word not in text


@pytest.mark.parametrize("name", RUNS)
def test_they_are_viewed(old, name, run_rlmflow):
    want = expected(old)[name]
    r = run_rlmflow("view", old / name, "--json")
    assert r.code == 0 and r.stderr == ""
    events = [json.loads(line) for line in r.stdout.splitlines()]
    assert (events[-1]["reason"] or "") == want["reason"] and events[-1]["agents"] == want["agents"]
    if name == "answered.rlm":
        assert events[-1]["answer"] == expected(old)["answer"]
        assert sum(e["type"] == "append_node" for e in events) == want["nodes"]
        assert len(events[0]["inputs"]) == 1


@pytest.mark.parametrize("flags", [(), ("--execute",)])
@pytest.mark.parametrize("name", RUNS)
def test_they_are_replayed(old, name, flags, run_rlmflow):
    r = run_rlmflow("replay", name, "-q", *flags, cwd=old)
    assert r.code == 0, r.stderr


@pytest.mark.parametrize("restore", ["replay", "fresh"])
def test_the_stopped_one_goes_on(old, restore, run_rlmflow):
    before = Journal(old / "stopped.rlm").records
    r = run_rlmflow("resume", "stopped.rlm", "-q", "--restore", restore, cwd=old)
    if restore == "replay":
        assert r.code == 0, r.stderr
        answer = json.loads(run_rlmflow("view", old / "stopped.rlm", "--json").stdout.splitlines()[-1])["answer"]
        assert answer == expected(old)["answer"]
    after = Journal(old / "stopped.rlm").records
    assert after[len(before)].kind == "resumed" and after[-1].kind == "run_ended"
    assert run_rlmflow("replay", "stopped.rlm", "-q", cwd=old).code == 0


def test_a_limit_is_lifted(old, run_rlmflow):
    r = run_rlmflow("resume", "limited.rlm", "-q", "--restore", "replay", "--max-iters", "9", cwd=old)
    assert r.code == 0, r.stderr


@pytest.mark.parametrize("kind", ["json", "sqlite", "rlmflow-python"])
def test_they_are_exported(old, kind, run_rlmflow):
    for name in RUNS:
        r = run_rlmflow("export", old / name, "--format", kind, "-o", old / f"{name}.{kind}")
        assert r.code == 0 and "note" not in r.stderr
    r = run_rlmflow("view", old / "answered.rlm.rlmflow-python") if kind == "rlmflow-python" else None
    assert r is None or r.code == 0
