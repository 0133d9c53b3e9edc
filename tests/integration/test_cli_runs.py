"""rlmflow runs: the list of kept runs, removal and pruning."""

import json
import os
import shutil
import subprocess
import time

import pytest
from journal import Journal, cut
from replies import FAMILY, cell
from runs import mind

DAY = 86400


@pytest.fixture
def shelf(workspace):
    """The directory of kept runs."""
    directory = workspace.state / "rlmflow" / "runs"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@pytest.fixture
def keep(run_rlmflow, scripted_model, shelf):
    """keep(name, query, code, *flags): runs a scripted model once and keeps the run by that name."""
    def make(name, query="count the fleas", code="done('7')", *flags):
        model = scripted_model([({}, cell(code))], f"{name}.script")
        r = run_rlmflow("run", query, "--model", model, "-q", "-o", shelf / name, *flags)
        assert r.code in (0, 1), r.stderr
        return shelf / name

    return make


def age(path, seconds):
    """As if nothing had been written for that long."""
    then = time.time() - seconds
    os.utime(path / "journal", (then, then))


def listed(run_rlmflow):
    """{name: object} of the list."""
    r = run_rlmflow("runs", "--json")
    assert r.code == 0, r.stderr
    found = [json.loads(line) for line in r.stdout.splitlines()]
    assert all(one["type"] == "run" for one in found)
    return {one["name"]: one for one in found}


def test_no_runs_are_an_empty_list(run_rlmflow):
    r = run_rlmflow("runs")
    assert (r.code, r.stdout) == (0, "") and r.stderr.startswith("0 runs in ")


def test_the_list_says_what_became_of_each(run_rlmflow, keep, shelf):
    answered = keep("a.rlm")
    keep("b.rlm", "think", "x = 1", "--max-iters", "2")
    cut(answered, shelf / "c.rlm", Journal(answered).records[4].end)
    runs = listed(run_rlmflow)
    assert {name: one["state"] for name, one in runs.items()} == {
        "a.rlm": "answered", "b.rlm": "limit", "c.rlm": "unfinished"}
    assert runs["b.rlm"]["reason"] == "max_iters" and runs["a.rlm"]["query"] == "count the fleas"
    size = sum(f.stat().st_size for f in answered.rglob("*") if f.is_file())
    assert runs["a.rlm"]["size_bytes"] == size and runs["a.rlm"]["run"] == str(answered)
    assert 0 <= time.time() - runs["a.rlm"]["started_us"] / 1e6 < 600
    table = run_rlmflow("runs").stdout
    assert "limit: max_iters" in table and "count the fleas" in table


def test_the_sums_of_the_last_record_are_those_of_all(run_rlmflow, server, workspace, shelf):
    server.set_rules(mind({"go": ["print(await llm_query('one'))",
                                  "print(await launch_subagents([{'query': 'work'}]))", "done('x')"],
                           "work": "done('y')"}))
    r = run_rlmflow("run", "go", "--model", "m", "--base-url", server.base_url, "--price", "1/2", "-q")
    assert r.code == 0, r.stderr
    (name, whole), = listed(run_rlmflow).items()
    last = Journal(shelf / name).records[-1]
    assert last.kind == "run_ended" and last["agents"] == 2 and last["usage"]["calls"] == 5
    view = json.loads(run_rlmflow("view", name, "--json").stdout.splitlines()[-1])
    assert whole["usage"] == view["usage"] and whole["usage"]["cost"] > 0
    assert f"${whole['usage']['cost']:.4f}" in run_rlmflow("runs").stdout
    # Without its last record all others are read.
    cut(shelf / name, shelf / "cut.rlm", Journal(shelf / name).records[-2].end)
    part = listed(run_rlmflow)["cut.rlm"]
    assert part["state"] == "answered"
    assert {k: part[k] for k in ("usage", "agents", "query")} == {
        k: whole[k] for k in ("usage", "agents", "query")}


def test_damaged_runs_are_listed_as_such_beside_good_ones(run_rlmflow, keep, shelf):
    good = keep("good.rlm")
    (shelf / "empty.rlm").mkdir()
    (shelf / "file.rlm").write_text("no run")
    (shelf / "link.rlm").symlink_to("/nonexistent")
    for name, content in {"nothing.rlm": b"", "text.rlm": b"hello, this is text",
                          "newer.rlm": b"rlmflow\x09" + b"x" * 40}.items():
        (shelf / name).mkdir()
        (shelf / name / "journal").write_bytes(content)
    os.mkdir(shelf / "fifo.rlm")
    os.mkfifo(shelf / "fifo.rlm" / "journal")
    shutil.copytree(good, shelf / "flipped.rlm")
    data = bytearray((good / "journal").read_bytes())
    data[Journal(good).records[2].end + 20] ^= 1
    (shelf / "flipped.rlm" / "journal").write_bytes(data[:Journal(good).records[-1].end - 1])
    (shelf / ".hidden.rlm").mkdir()
    runs = listed(run_rlmflow)
    bad = {"empty.rlm", "file.rlm", "link.rlm", "nothing.rlm", "text.rlm", "newer.rlm", "fifo.rlm",
           "flipped.rlm"}
    assert {n for n, one in runs.items() if one["state"] == "damaged"} == bad
    assert all(runs[name]["problem"] for name in bad) and runs["good.rlm"]["state"] == "answered"
    assert "newer rlmflow" in runs["newer.rlm"]["problem"] and "byte" in runs["flipped.rlm"]["problem"]
    assert run_rlmflow("runs").code == 0


def test_what_a_query_holds_cannot_move_the_cursor(run_rlmflow, keep):
    keep("a.rlm", "one\x1b[2Jtwo\nthree\r" + "é" * 300)
    r = run_rlmflow("runs")
    assert "\x1b" not in r.stdout and "\r" not in r.stdout and len(r.stdout.splitlines()) == 2
    query = listed(run_rlmflow)["a.rlm"]["query"]
    assert query.startswith("one\x1b[2Jtwo\nthree\r\xe9\xe9") and "\ufffd" not in query


def test_a_living_run_is_neither_removed_nor_pruned(run_rlmflow, start_rlmflow, scripted_model, shelf):
    model = scripted_model([({}, cell("import time\nopen('begun', 'w').close()\ntime.sleep(600)"))])
    p = start_rlmflow("run", "sleep", "--model", model, "-q", "-o", shelf / "live.rlm", "--cwd", shelf)
    end = time.monotonic() + 60
    while not (shelf / "begun").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert listed(run_rlmflow)["live.rlm"]["state"] == "running"
    r = run_rlmflow("runs", "remove", "live")
    assert r.code == 2 and "live.rlm" in r.stderr and f"process {p.pid} writes it" in r.stderr
    r = run_rlmflow("runs", "prune", "--keep-size", "0", "--older-than", "0s")
    assert r.code == 0 and r.stdout == "" and (shelf / "live.rlm" / "journal").exists()
    p.kill()
    p.wait()
    (shelf / "begun").unlink()
    assert listed(run_rlmflow)["live.rlm"]["state"] == "unfinished"
    assert run_rlmflow("runs", "remove", "live").code == 0 and not (shelf / "live.rlm").exists()


def test_removal_takes_names_and_paths_and_nothing_that_is_no_run(run_rlmflow, keep, shelf, tmp_path):
    for name in ("a.rlm", "b.rlm", "c.rlm"):
        keep(name)
    r = run_rlmflow("runs", "remove", "a", "nope", shelf / "b.rlm")
    assert r.code == 2 and "nope" in r.stderr and "removed" in r.stderr
    assert sorted(p.name for p in shelf.iterdir()) == ["c.rlm"]
    home = tmp_path / "home"
    (home / "blobs").mkdir(parents=True)
    (home / "journal").write_text("Dear diary, ...")
    (home / "blobs" / "photo").write_text("x")
    assert run_rlmflow("runs", "remove", home).code == 2
    assert (home / "journal").exists() and (home / "blobs" / "photo").exists()
    (tmp_path / "link.rlm").symlink_to(shelf / "c.rlm")
    r = run_rlmflow("runs", "remove", tmp_path / "link.rlm")
    assert r.code == 2 and "symbolic link" in r.stderr and (shelf / "c.rlm" / "journal").exists()
    (shelf / "c.rlm" / "notes").write_text("mine")
    r = run_rlmflow("runs", "remove", "c")
    assert r.code == 2 and "none of the run" in r.stderr
    assert [p.name for p in (shelf / "c.rlm").iterdir()] == ["notes"]
    assert run_rlmflow("runs", "remove").code == 2


def test_two_that_remove_a_run_at_once(start_rlmflow, keep, shelf):
    """One of them does it; the other finds that there is none, or is told who is at it."""
    kept = keep("kept.rlm")
    for _ in range(20):
        shutil.copytree(kept, shelf / "run.rlm")
        both = [start_rlmflow("runs", "remove", shelf / "run.rlm") for _ in range(2)]
        said = [(p.communicate(timeout=60)[1].decode(), p.returncode) for p in both]
        assert 0 in [code for _, code in said] and not (shelf / "run.rlm").exists(), said
        assert all(code == 0 or code == 2 and ("there is no run" in text or "in use" in text)
                   for text, code in said), said


def test_pruning_goes_by_age_and_by_size_from_the_oldest(run_rlmflow, workspace, keep, shelf):
    for i, days in enumerate((40, 20, 10, 1)):
        age(keep(f"r{i}.rlm"), days * DAY)
    sizes = {n: one["size_bytes"] for n, one in listed(run_rlmflow).items()}
    assert list(listed(run_rlmflow)) == ["r3.rlm", "r2.rlm", "r1.rlm", "r0.rlm"]
    r = run_rlmflow("runs", "prune", "--older-than", "30d", "--dry-run")
    assert r.stdout.splitlines() == [r.stdout.strip()] and r.stdout.startswith("would remove r0.rlm (answered, 40 d")
    assert len(listed(run_rlmflow)) == 4
    r = run_rlmflow("runs", "prune", "--older-than", "30d")
    assert r.code == 0 and r.stdout.startswith("removed r0.rlm") and "removed 1 run of 4" in r.stderr
    both = subprocess.run([workspace.program, "runs"], env=workspace.environment(), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60).stdout
    assert both.splitlines()[-1].startswith("3 runs in ")
    r = run_rlmflow("runs", "prune", "--keep-size", str(sizes["r3.rlm"] + sizes["r2.rlm"]))
    assert r.stdout.startswith("removed r1.rlm") and list(listed(run_rlmflow)) == ["r3.rlm", "r2.rlm"]
    r = run_rlmflow("runs", "prune", "--older-than", "1w", "--keep-size", "5g")
    assert list(listed(run_rlmflow)) == ["r3.rlm"]


@pytest.mark.parametrize("words", [
    ["prune"], ["prune", "--older-than", "soon"], ["prune", "--older-than", "-1d"], ["prune", "x"],
    ["prune", "--older-than", "99999999999999d"], ["frob"], ["--dry-run"], ["--keep-size", "1g"],
    ["remove", "a", "--older-than", "1d"], ["prune", "--older-than", "1d", "--json"], ["list", "x"]])
def test_what_makes_no_sense_is_refused(run_rlmflow, keep, shelf, words):
    keep("a.rlm")
    r = run_rlmflow("runs", *words)
    assert r.code == 2 and r.stderr and (shelf / "a.rlm" / "journal").exists()


def test_a_run_that_went_on_is_what_its_last_drive_left(run_rlmflow, keep, shelf, scripted_model):
    limited = keep("a.rlm", "think", "x = 1", "--max-iters", "1")
    model = scripted_model([({}, cell("done('8')"))])
    r = run_rlmflow("resume", limited, "--model", model, "--max-iters", "5", "-q")
    assert r.code == 0, r.stderr
    records = Journal(limited).records
    on = next(r for r in records if r.kind == "resumed")
    cut(limited, shelf / "b.rlm", on.end)
    cut(limited, shelf / "c.rlm", records[-2].end)
    runs = listed(run_rlmflow)
    assert (runs["a.rlm"]["state"], runs["a.rlm"]["reason"]) == ("answered", "answered")
    assert runs["b.rlm"]["state"] in ("limit", "unfinished") and runs["c.rlm"]["state"] == "answered"


def test_agents_that_were_taken_out_are_not_counted(run_rlmflow, scripted_model, shelf, build_dir):
    path = shelf / "family.rlm"
    r = run_rlmflow("run", "go", "--model", scripted_model(FAMILY), "-q", "-o", path)
    assert r.code == 0, r.stderr
    calls = listed(run_rlmflow)["family.rlm"]["usage"]["calls"]
    edit = [build_dir / "tests" / "tools" / "graph_edit", path, "remove-child", "root.a"]
    subprocess.run(edit, check=True, capture_output=True, timeout=60)
    one = listed(run_rlmflow)["family.rlm"]
    assert (one["agents"], one["state"], one["usage"]["calls"]) == (2, "answered", calls)
    r = run_rlmflow("rewind", f"{path}@root:0")
    assert r.code == 0, r.stderr
    one = listed(run_rlmflow)["family.rlm"]
    assert (one["agents"], one["state"], one["usage"]["calls"]) == (1, "unfinished", calls)
    view = json.loads(run_rlmflow("view", path, "--json").stdout.splitlines()[-1])
    assert (view["agents"], view["usage"]["calls"]) == (1, calls)


def test_a_run_that_was_stopped_is_unfinished(run_rlmflow, start_rlmflow, scripted_model, shelf):
    model = scripted_model([({}, cell("import time\nopen('begun', 'w').close()\ntime.sleep(600)"))])
    p = start_rlmflow("run", "sleep", "--model", model, "-q", "-o", shelf / "a.rlm", "--cwd", shelf)
    while not (shelf / "begun").exists():
        assert p.poll() is None
    p.send_signal(2)
    p.wait()
    (shelf / "begun").unlink()
    one = listed(run_rlmflow)["a.rlm"]
    assert (one["state"], one["reason"]) == ("unfinished", "interrupted")


def test_a_list_of_many_runs_reads_little_of_each(run_rlmflow, keep, shelf):
    first = keep("r0.rlm", "think", "print('x' * 60000)", "--max-iters", "15", "--max-output-length", "0")
    for i in range(1, 40):
        shutil.copytree(first, shelf / f"r{i}.rlm")
    journal = (first / "journal").stat().st_size
    before = bytes_read()
    assert len(listed(run_rlmflow)) == 40
    read = bytes_read() - before
    assert journal > 800000 and read < 40 * 300000, (journal, read)


def bytes_read():
    """By this process and the children that it has waited for."""
    with open("/proc/self/io", encoding="ascii") as file:
        return int(dict(line.split(": ") for line in file)["rchar"])


def test_much_that_is_kept_is_said_with_what_to_do(run_rlmflow, keep, shelf, scripted_model):
    keep("big.rlm")
    with open(shelf / "big.rlm" / "blobs" / ("0" * 64), "wb") as sparse:
        sparse.truncate(11 << 30)
    model = scripted_model([({}, cell("done('7')"))])
    r = run_rlmflow("run", "count", "--model", model)
    assert r.code == 0 and "kept runs take 11" in r.stderr and "`rlmflow runs prune" in r.stderr
    assert "big.rlm" in r.stderr
    assert run_rlmflow("runs", "prune", "--keep-size", "5g").stdout.startswith("removed big.rlm")
