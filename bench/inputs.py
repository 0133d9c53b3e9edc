"""inputs.py BUILD [MIB=1024]: big text inputs beside `cp`, `openssl sha256` and `split`.

For each kind of text: from the start of the program to the end of its first cell, which asks for the
length and then for the time (the rest of the run, which syncs its files, is not in it), beside `cp` +
`openssl sha256` of as many bytes as that text takes in memory. Then 64 children that get the whole
text, and what it costs in memory while all of them hold it; then 64 that get slices, beside `split` +
`openssl sha256`. Files lie in TMPDIR; five rounds by turns, medians. Each side removes what it wrote the
round before just before it is timed: where the host of a virtual machine must provide the pages anew,
a gigabyte written costs up to four times as much.
"""
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from processes import descendants, pss_kib

build = pathlib.Path(sys.argv[1]).resolve()
MIB = int(sys.argv[2]) if len(sys.argv) > 2 else 1024
ROUNDS = 5
work = pathlib.Path(tempfile.mkdtemp(prefix="rlmflow-bench-"))


def timed(argv, **kw):
    start = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **kw)
    return time.perf_counter() - start


def fill(path, line, mib):
    block = line.encode() * (1 + (1 << 20) // len(line.encode()))
    with open(path, "wb") as out:
        for _ in range(mib):
            out.write(block)
        os.fsync(out.fileno())
    return os.path.getsize(path)


def script(text):
    path = work / "script"
    path.write_text(text)
    return f"script:{path}"


def run(model, source, name, *more):
    out = work / f"{name}.rlm"
    shutil.rmtree(out, ignore_errors=True)
    argv = [build / "rlmflow", "run", "go", "--input", f"text=@{source}", "--model", model, "-o", out,
            "--quiet", "--python", "/usr/bin/python3", *more]
    began = time.time()
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    return began, time.time() - began, done.stdout.strip()


def floor(path):
    copy = work / "copy"
    copy.unlink(missing_ok=True)
    return timed(["cp", "--reflink=never", path, copy]) + timed(["openssl", "sha256", path])


def first_cell(kind, line, mib, width):
    source, wide = work / "source", work / "wide"
    size = fill(source, line, mib)
    chars = size // len(line.encode()) * len(line)
    if chars * width == size:
        wide = source
    else:
        fill(wide, "x" * 64, chars * width >> 20)
    model = script("@reply\n```repl\nimport time\nn = len(text)\ndone(f\"{n} {time.time()}\")\n```\n")
    took, base = [], []
    for _ in range(ROUNDS):
        began, _, answer = run(model, source, "first")
        n, ended = answer.split()
        assert int(n) == chars, (n, chars)
        took.append(float(ended) - began)
        base.append(floor(wide))
    ours, theirs = statistics.median(took), statistics.median(base)
    print(f"{kind:9} {size >> 20:5} MiB, {chars * width >> 20:5} MiB in memory: to the first cell {ours:.2f} s, "
          f"cp + sha256 of these {theirs:.2f} s, ratio {ours / theirs:.2f}", flush=True)
    for path in {source, wide}:
        path.unlink()


def workers(pid):
    """The processes below the program that hold a session."""
    found = set()
    for below in descendants(pid):
        try:
            if b"rlmflow_worker" in open(f"/proc/{below}/cmdline", "rb").read():
                found.add(below)
        except OSError:
            pass
    return found


def pss_of_64_children(proc, here, go):
    """PSS of all workers while the root and its 64 children all hold their inputs: each child says in
    the directory `here` that it has read its text, and ends when `go` exists."""
    try:
        deadline = time.monotonic() + 100  # the children's cells may take 120 s
        while proc.poll() is None and len(os.listdir(here)) < 64 and time.monotonic() < deadline:
            time.sleep(0.05)
        before = workers(proc.pid)
        peak = pss_kib(descendants(proc.pid))
        ready, alive = len(os.listdir(here)), len(before & workers(proc.pid))
        if proc.poll() is not None or ready != 64 or alive < 65:
            proc.kill()
            sys.exit(f"inputs.py: when PSS was read, {ready} of 64 children were ready and {alive} of 65 "
                     "workers alive")
        return peak
    finally:
        go.touch()


def shared(mib):
    source = work / "source"
    fill(source, "The quick brown fox jumps over the lazy dog.\n", mib)
    code = ('r = await launch_subagents([{"query": "q", "inputs": %s}] * 64)\n'
            'done(len(set(r)))')
    reply = "@reply agent=root\n```repl\n%s\n```\n@reply\n```repl\n%s\n```\n"
    peaks = {}
    for name, inputs in (("without", "{}"), ("with", '{"text": text}')):
        here, go = work / f"here-{name}", work / f"go-{name}"
        here.mkdir()
        child = ('import os, time\nn = text.count("fox") if "text" in INPUTS else 0\n'
                 f'open(f"{here}/{{os.getpid()}}", "w").close()\n'
                 f'while not os.path.exists("{go}"): time.sleep(0.05)\ndone(n)')
        proc = subprocess.Popen([build / "rlmflow", "run", "go", "--input", f"text=@{source}", "--model",
                                 script(reply % (code % inputs, child)), "-o", work / f"{name}.rlm", "--quiet",
                                 "--workers", "64", "--max-live", "65", "--python", "/usr/bin/python3"],
                                stdout=subprocess.PIPE)
        peaks[name] = pss_of_64_children(proc, here, go)
        answer = proc.communicate()[0].strip()
        if proc.returncode or answer != b"1":  # all 64 have counted the same
            sys.exit(f"inputs.py: the run of 64 children ended with {proc.returncode}, {answer!r}")
        shutil.rmtree(work / f"{name}.rlm")
    print(f"64 children that read {mib} MiB, all alive: PSS of all workers {peaks['with'] >> 10} MiB, "
          f"without the input {peaks['without'] >> 10} MiB, so the input costs "
          f"{(peaks['with'] - peaks['without']) / 1024 / mib:.2f} of its size", flush=True)
    source.unlink()


def slices(mib):
    source = work / "source"
    fill(source, "The quick brown fox jumps over the lazy dog.\n", mib)
    model = script("@reply agent=root\n```repl\nn = len(text) // 64 + 1\n"
                   'r = await launch_subagents([{"query": "q", "inputs": {"part": text[i * n:(i + 1) * n]}} '
                   "for i in range(64)])\ndone(sum(map(int, r)))\n```\n@reply\n```repl\ndone(len(part))\n```\n")
    took, base, parts = [], [], work / "parts"
    for _ in range(ROUNDS):
        took.append(run(model, source, "slices", "--workers", "64")[1])
        shutil.rmtree(parts, ignore_errors=True)
        parts.mkdir()
        base.append(timed(["split", "-n", "64", source, parts / "p"]) +
                    timed(["sh", "-c", "openssl sha256 p*"], cwd=parts))
    ours, theirs = statistics.median(took), statistics.median(base)
    print(f"64 children with slices of {mib} MiB: whole run {ours:.2f} s; split + sha256 {theirs:.2f} s "
          f"(and the input itself must be taken in before), ratio {ours / theirs:.2f}", flush=True)
    source.unlink()


try:
    first_cell("ASCII", "The quick brown fox jumps over the lazy dog.\n", MIB, 1)
    first_cell("Latin-1", "Der flinke Fuchs springt über den trägen Hund.\n", MIB, 1)
    first_cell("Cyrillic", "Съешь ещё этих мягких французских булок.\n", MIB, 2)
    first_cell("an emoji", "The quick brown fox jumps over the lazy dog \U0001F415.\n", MIB // 4, 4)
    shared(MIB)
    slices(MIB)
finally:
    shutil.rmtree(work)
