"""Disks and machines that fail: a cut of the power, a full disk, a stopped process, two at once."""

import hashlib
import os
import random
import re
import resource
import signal
import subprocess
import time

import pytest
from hosts import make_host, results  # noqa: F401
from journal import MAGIC, Journal, blob_ids, cut
from runs import command, descendants, go, look, mind  # noqa: F401
from test_resume import TORTURE, Resumer, bought, resumer  # noqa: F401

SEED = int(os.environ.get("RLMFLOW_SEED", random.SystemRandom().randrange(10**6)))
PAGE = 4096
ROOT = ["text = INPUTS['corpus'] * 3\nprint(len(text))",
        "got = await launch_subagents([{'query': f'work {i}', 'inputs': {'part': text[i:i + 90000]}} for i in "
        "range(3)])\nprint(got)",
        "print('y' * 100_000)\nnote = await llm_query('about ' + text[:70000])",
        "done(f'{len(text)} {got} {note[:5]} {len(note)}')"]
WORK = ["n = len(INPUTS['part'])\nprint(INPUTS['part'][:70000])", "done(str(n))"]
ANSWER = "200106 ['90000', '90000', '90000'] zzzzz 80000"


def story(root=ROOT):
    return mind({"go": root, "work": WORK}, query={"reply": "z" * 80_000, "chunks": 20_000,
                                                   "ignore_max_tokens": True})


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("".join(f"{i:06}\n" for i in range(9529))[:66702])
    return f"corpus=@{path}"


# ---- a cut of the power ----

class Disk:
    """What was durable after each sync of a run, by its log (see tests/tools/sync_log.c)."""

    def __init__(self, run, log):
        self.run, self.lines = run, log.read_text().splitlines()
        self.now = {p.stat().st_ino: p for p in [run, *run.rglob("*")]}
        self.journal = (run / "journal").read_bytes()

    def rebuild(self, copy, n_syncs):
        """The run as it is after so many syncs; (bytes of its journal), or None when it is not there."""
        sizes, entries = {}, {}
        for line in self.lines[:n_syncs]:
            kind, inode, *rest = line.split(" ")
            if kind == "file":
                sizes[int(inode)] = max(sizes.get(int(inode), 0), int(rest[0]))
            else:
                entries[int(inode)] = dict(r.rsplit("=", 1) for r in rest)
        inode_of = lambda path: path.stat().st_ino  # noqa: E731
        named = entries.get(inode_of(self.run), {})
        if self.run.name not in entries.get(inode_of(self.run.parent), {}) or "journal" not in named:
            return None
        copy.mkdir()
        (copy / "blobs").mkdir()
        for name, inode in [*named.items(), *((f"blobs/{n}", i) for n, i in entries.get(
                int(named.get("blobs", 0)), {}).items())]:
            path = self.now.get(int(inode))
            if path is not None and path.is_file():
                (copy / name).write_bytes(path.read_bytes()[:sizes.get(int(inode), 0)])
        return (copy / "journal").stat().st_size


def logging_syncs(build_dir, run_rlmflow, log):
    """The environment in which the program writes that log."""
    sanitizer = run_rlmflow.__self__.environment()["ASAN_OPTIONS"] + ":verify_asan_link_order=0"
    return {"LD_PRELOAD": build_dir / "tests" / "tools" / "libsync_log.so", "RLM_SYNC_LOG": log,
            "ASAN_OPTIONS": sanitizer}


@pytest.fixture(params=[("--sync",), ()], ids=["sync", "default"])
def disk(request, build_dir, server, command, run_rlmflow, tmp_path, corpus):
    """A run that has ended, and what was durable when."""
    log, rules = tmp_path / "syncs", story()
    if not request.param:  # a sync follows after a second
        rules = story([*ROOT[:2], *({"reply": code, "first_byte_delay_ms": 1200} for code in ROOT[2:])])
    server.set_rules(rules)
    args, path = command(server, "--input", corpus, *request.param)
    done = run_rlmflow(*args, env=logging_syncs(build_dir, run_rlmflow, log))
    assert done.stdout == ANSWER + "\n", done.stderr
    return Disk(path, log)


def is_there(run, blob):
    """Whether all of a blob is in the run."""
    path = run / "blobs" / blob
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == blob


def first_missed(run, journal):
    """The first record that names a blob which is not there, as (where it begins, the blobs); or where the
    last ends, and none."""
    begin = len(MAGIC)
    for record in journal.records:
        named = blob_ids(record.members) | ({record["id"]} if record.kind == "blob" else set())
        missed = [blob for blob in named if not is_there(run, blob)]
        if missed:
            return begin, missed
        begin = record.end
    return begin, []


def goes_on(resumer, copy, total):
    """A run whose end is damaged is resumed to the same answer, and what is cut off is reported. A record
    whose blob is missed is cut off only with --cut; true when nothing but the tail was damaged."""
    journal, size = Journal(copy, torn=True), (copy / "journal").stat().st_size
    end, missed = first_missed(copy, journal)
    run, asked = resumer.resume(copy, "--restore", "replay", rules=story())
    if missed:
        assert run.code == 2 and any(blob in run.stderr for blob in missed), run.stderr
        assert f"the record at byte {end}: " in run.stderr, (end, run.stderr)
        assert f"would lose the {size - end} bytes from there" in run.stderr, (size - end, run.stderr)
        assert "--cut" in run.stderr, run.stderr
        size = (copy / "journal").stat().st_size
        assert size == journal.end  # the torn tail went with the first
        run, asked = resumer.resume(copy, "--restore", "replay", "--cut", rules=story())
    assert run.answer == ANSWER, run.stderr
    said = f"the journal's end was damaged: the {size - end} bytes from byte {end} on are cut off"
    assert run.stderr.count("are cut off") == run.stderr.count(said) == (end < size), (said, run.stderr)
    # Replies that the journal holds when all is over were bought once, each.
    assert asked <= total and len(bought(copy)) == total, run.stderr
    return end < size and not missed


def test_what_a_cut_of_the_power_leaves_goes_on(disk, resumer, tmp_path, run_rlmflow):
    total = len(bought(disk.run))
    syncs = range(1, len(disk.lines) + 1)
    tried = []

    def at(n):
        copy = tmp_path / f"cut{n}.rlm"
        size = disk.rebuild(copy, n)
        if size is None or size <= 8:
            return
        Journal(copy)  # whole records, all of them
        before = len(bought(copy))
        run, asked = resumer.resume(copy, "--restore", "replay", rules=story())
        if "has ended with an answer" not in run.stderr:
            assert run.answer == ANSWER, (n, run.stderr)
            assert asked == total - before, n
        tried.append(n)

    resumer.each(at, syncs if TORTURE else [n for n in syncs if n % 3 == 0 or n > len(disk.lines) - 2])
    assert len(tried) >= 2


def test_a_torn_page_behind_the_last_sync_is_reported_and_cut(disk, resumer, tmp_path):
    """Some of what was written behind the last sync is there, with blobs that are not."""
    total, tears = len(bought(disk.run)), [100, 3000, 9000, 40000]
    torn_tails = []

    def at(tear):
        n, bytes_more = tear
        moments = random.Random(f"{SEED} {tear}")
        copy = tmp_path / f"torn{n}-{bytes_more}.rlm"
        size = disk.rebuild(copy, n)
        if size is None or size <= 8 or size == len(disk.journal):
            return
        end = min(len(disk.journal), size + bytes_more)
        data = bytearray(disk.journal[:end])
        torn = max(size, (end - 1) // PAGE * PAGE)
        lost = len(data) - torn
        data[torn:] = bytes(lost) if moments.random() < 0.5 else moments.randbytes(lost)
        (copy / "journal").write_bytes(data)
        torn_tails.append(goes_on(resumer, copy, total))

    syncs = range(1, len(disk.lines) + 1)
    if TORTURE or len(syncs) < 30:
        resumer.each(at, [(n, more) for n in syncs for more in tears])
    else:
        resumer.each(at, [(n, tears[n // 4 % 4]) for n in syncs if n % 4 == 1])
    assert len(torn_tails) >= 10 and sum(torn_tails) >= 5, torn_tails


@pytest.mark.replayed("recorded", "its cells look at what is durable")
def test_with_sync_nothing_is_sent_or_run_before_its_record_is_durable(
        build_dir, server, command, run_rlmflow, look, tmp_path):
    args, path = command(server, "--sync")
    log, sent = tmp_path / "syncs", []
    durable = (f"import os\nat = 'file %d ' % os.stat({str(path / 'journal')!r}).st_ino\n"
               f"size = max((int(l.split()[2]) for l in open({str(log)!r}) if l.startswith(at)), default=0)\n")

    def reply(request):
        known = {}
        exec(durable, known)  # what the cells find out, when the request is here
        sent.append(known["size"])
        return durable + ("print(size)" if len(sent) < 3 else "done(str(size))")

    server.set_rules(mind({"go": reply}))
    run = look(run_rlmflow(*args, env=logging_syncs(build_dir, run_rlmflow, log)), path)
    started = [*map(int, run.seen()), int(run.answer)]
    journal = Journal(path)
    for sizes, kind in ((sent, "reserve"), (started, "cell_started")):
        ends = [r.end for r in journal.all(kind)]
        assert len(ends) == 3 and all(size >= end for size, end in zip(sizes, ends)), (kind, sizes, ends)


def tear(path):
    """Its last page never reached the disk."""
    data = path.read_bytes()
    kept = (len(data) - 1) // PAGE * PAGE
    path.write_bytes(data[:kept] + bytes(len(data) - kept))


DAMAGE = {"gone": lambda path: path.unlink(), "empty": lambda path: os.truncate(path, 0),
          "half": lambda path: os.truncate(path, path.stat().st_size // 2), "a torn page": tear,
          "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
          "a bit": lambda path: path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])}


@pytest.mark.replayed("never", "blobs of the copies are damaged")
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_blob_that_did_not_reach_the_disk(go, resumer, tmp_path, corpus, damage, run_rlmflow):
    """Each is missed, by name, also if it is only mapped; the run goes on from before the record."""
    whole = go(story(), "--input", corpus)
    assert whole.answer == ANSWER, whole.stderr
    end = Journal(whole.path).records[-3].end
    total = len(bought(whole.path))
    ids = sorted(p.name for p in (whole.path / "blobs").iterdir() if len(p.name) == 64)
    given = {v["$blob"] for v in Journal(whole.path).records[0]["inputs"].values()}
    assert len(ids) >= 5 and given

    def at(blob):
        copy = cut(whole.path, tmp_path / f"{damage}{blob[:8]}.rlm", end)
        DAMAGE[damage](copy / "blobs" / blob)
        result = run_rlmflow("resume", copy, "--restore", "replay")
        assert result.code == 2 and blob in result.stderr, (blob, result.stderr)
        assert "--cut" in result.stderr, result.stderr
        if blob not in given:  # without the run's own input nothing can go on
            goes_on(resumer, copy, total)

    resumer.each(at, ids)


# ---- a full disk that is freed later ----

@pytest.fixture(params=["full disk", "file limit"])
def short_of_space(request, workspace, tmp_path):
    """short_of_space(args, path, kilobytes, program=None): runs the program where the run at path cannot
    grow far; what is on the small disk is then brought to path, as if the disk had been freed."""
    mount = tmp_path / "disk"
    mount.mkdir()

    def run(args, path, kilobytes, program=workspace.program):
        if request.param == "full disk":
            args = [mount / path.name if arg == path else arg for arg in args]
            script = (f'mount -t tmpfs -o size={kilobytes}k none "$0" && "$@"; code=$?; '
                      f'cp -r "$0/{path.name}" "{path}"; exit $code')
            command, before = ["unshare", "-rm", "sh", "-c", script, mount, program], None
        else:
            command = [program]
            size = kilobytes * 1024

            def before():
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        return subprocess.run([*map(str, command), *map(str, args)], env=workspace.environment(),
                              cwd=workspace.cwd, capture_output=True, timeout=60, preexec_fn=before, text=True)

    return run


PRINTS = ["x = 0", *["x += 1\nprint(str(x) * 9000)"] * 10, "done(str(x))"]


def test_a_full_disk_that_is_freed_later(short_of_space, server, command, resumer, tmp_path):
    rules = mind({"go": PRINTS})
    server.set_rules(rules)
    args, path = command(server)
    done = short_of_space(args, path, 64)
    assert done.returncode == 1 and "failed" in done.stderr, done.stderr
    had = len(bought(path))
    assert 2 <= had < 11
    run, asked = resumer.resume(path, "--restore", "replay", rules=rules)
    assert run.answer == "10", run.stderr
    assert asked == 12 - had
    assert "printed something else" not in "".join(run.seen())


def test_a_disk_that_is_full_again_in_a_resume(short_of_space, server, command, resumer, tmp_path):
    """A kill, then a resume that cannot write, then one that can."""
    rules = mind({"go": PRINTS})
    server.set_rules(rules)
    args, path = command(server)
    done = short_of_space(args, path, 64)
    assert done.returncode == 1, done.stderr
    size = (path / "journal").stat().st_size

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, size + 100))

    server.reset()
    full = subprocess.run([resumer.run_rlmflow.__self__.program, "resume", path, "--restore", "replay"],
                          env=resumer.run_rlmflow.__self__.environment(), capture_output=True, text=True,
                          timeout=60, preexec_fn=limit, stdin=subprocess.DEVNULL)
    assert full.returncode == 1 and "File too large" in full.stderr, full.stderr
    run, _ = resumer.resume(path, "--restore", "replay", rules=rules)
    assert run.answer == "10", run.stderr


def bulky(name, before, after):
    """Cells that print much between these, 14 KB of journal each; no two are alike."""
    return [before, *(f"{name} = {i}\nprint('x' * 9000)" for i in range(3)), after]


FULL_AT = {"the root": (20, "r1 r2"), "its child": (72, "r1 r2 k1 k2"),
           "the root again": (120, "r1 r2 k1 k2 k3 r3")}


@pytest.mark.parametrize("where", FULL_AT)
def test_a_full_disk_with_a_child_and_tools(short_of_space, make_host, make_server, where):
    """What was paid for or performed before is not again, wherever the disk is full."""
    kilobytes, had_tools = FULL_AT[where]
    host = make_host("full")
    launch = "state += await launch_subagents([{'query': 'work', 'name': 'w'}])\nprint(state)"
    finish = "done('/'.join([*mine, look('k3')]))"
    rules = mind({"go": [*bulky("x", "state = [look('r1'), buy('r2')]", launch),
                         *bulky("y", "state.append(look('r3'))", "done('|'.join(state))")],
                  "work": bulky("z", "mine = [look('k1'), buy('k2')]", finish)})
    server = make_server(rules)
    args = host.arguments("run", server, workers=1, delay=1)
    full = short_of_space(args, host.run, kilobytes, host.program)
    assert full.returncode == 1 and full.stderr.startswith("failed: "), full.stderr
    assert any(said in full.stderr for said in ("No space left on device", "File too large")), full.stderr
    had, before = len(bought(host.run)), host.counts()
    # All that was performed is written, and of the replies all but the last, which did not fit.
    assert results(host.run) == set(before) and {key.split()[1] for key in before} == set(had_tools.split())
    assert len(server.requests) - had in (0, 1)
    server = make_server(rules)
    ended = host.drive("resume", server, workers=1, delay=1)
    assert ended.stdout == "look:r1|buy:r2|look:k1/buy:k2/look:k3|look:r3", ended.stderr
    assert len(server.requests) == 15 - had and len(bought(host.run)) == 15
    assert set(host.counts()) == {"look r1", "buy r2", "look k1", "buy k2", "look k3", "look r3"}
    assert set(host.counts().values()) == {1}, host.counts()


# ---- a process that is stopped, and two at once ----

@pytest.fixture
def waiting(server, start_rlmflow, command):
    """(process, path) of a run whose model does not answer until `server.release("later")`."""
    server.set_rules(mind({"go": ["x = 5", "print(await llm_query('q'))", "done(str(x))"]},
                          query={"reply": "noted", "gate": "later"}))
    args, path = command(server)
    process = start_rlmflow(*args)
    end = time.monotonic() + 60
    while len(server.requests) < 3:
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.01)
    return process, path


@pytest.mark.parametrize("stopped", [False, True], ids=["alive", "stopped"])
def test_the_second_is_refused_and_told_who_is_first(waiting, run_rlmflow, server, stopped):
    process, path = waiting
    if stopped:
        process.send_signal(signal.SIGSTOP)
    before = (path / "journal").read_bytes()
    second = run_rlmflow("resume", path, "--restore", "replay")
    assert second.code == 2 or second.code == 1
    assert f"the run {path} is in use: process {process.pid} writes it" in second.stderr, second.stderr
    assert (path / "journal").read_bytes() == before
    process.send_signal(signal.SIGCONT)
    server.release("later")
    out, err = process.communicate(timeout=60)
    assert out == b"5\n", err


def test_two_resumes_at_once(waiting, start_rlmflow, server):
    process, path = waiting
    process.kill()
    process.communicate()
    both = [start_rlmflow("resume", path, "--restore", "replay") for _ in range(2)]
    pids = [p.pid for p in both]
    end = time.monotonic() + 60
    while all(p.poll() is None for p in both):
        assert time.monotonic() < end
        time.sleep(0.01)
    server.release("later")
    ended = [(p.communicate(timeout=60), p.returncode) for p in both]
    first = [i for i in range(2) if ended[i][1] == 0]
    assert len(first) == 1, ended
    other = 1 - first[0]
    assert ended[first[0]][0][0] == b"5\n"
    assert f"process {pids[first[0]]} writes it".encode() in ended[other][0][1], ended[other]


def test_a_run_and_its_workers_that_are_stopped_go_on(waiting, server):
    process, path = waiting
    workers = descendants(process.pid)
    for pid in [process.pid, *workers]:
        os.kill(pid, signal.SIGSTOP)
    server.release("later")
    time.sleep(0.3)  # the reply comes meanwhile
    for pid in [*workers, process.pid]:
        os.kill(pid, signal.SIGCONT)
    out, err = process.communicate(timeout=60)
    assert out == b"5\n", err
