"""The engines of peers.py: an environment for each, and one figure of one in a child process."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

from processes import descendants, held_kib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
PEERS = {"rlmflow": "rlmflow==0.3.2", "rlms": "rlms==0.1.3", "smolagents": "smolagents==1.26.0",
         "dspy": "dspy==3.4.1"}
IMPORTED = {"ours": "rlmflow", "rlms": "rlm"}  # of the others the name says it
VARIANTS = {"ours": ["LocalRuntime", "SubprocessRuntime"], "rlmflow": ["LocalRuntime, in memory"],
            "rlms": ["local environment"], "smolagents": ["local executor"], "dspy": ["plain worker"]}
SAMPLE_EVERY_S = 0.02


class Engine:
    """`ours` is the package of this tree, or that in the directory `site`; the others are from PyPI."""

    def __init__(self, name, venvs, site):
        self.name, self.folder = name, venvs / name
        self.python = self.folder / "bin" / "python"
        self.site = site if name == "ours" else None
        self.imported = IMPORTED.get(name, name)
        self.variants = VARIANTS[name]

    def prepare(self):
        """Makes the environment unless it is there for what is wanted now."""
        wanted = PEERS.get(self.name) or self.site or tree_version()
        marker = self.folder / "made-for"
        if marker.exists() and marker.read_text() == wanted and not wanted.endswith("-dirty"):
            return
        print(f"making the environment of {self.name} ({wanted})", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", self.folder], check=True)
        if not self.site:
            subprocess.run([self.python, "-m", "pip", "install", "-q", "--disable-pip-version-check",
                            PEERS.get(self.name, ROOT)], check=True)
        marker.write_text(wanted)

    def measure(self, variant, figure, amount, limit_s, sampled=False):
        """What the child says (see peers/child.py), or {"failed": why}. `sampled`: also the memory of its
        process tree in KiB, "before" and at its "peak"."""
        argv = [self.python, "-I", HERE / "peers" / "child.py", HERE / "peers" / f"{self.name}.py", variant,
                figure, str(amount), *([self.site] if self.site else [])]
        with open(self.folder / "last.log", "w+") as log:
            child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                                     text=True, cwd=self.folder)
            limit = threading.Timer(limit_s, end_tree, [child.pid])
            limit.start()
            try:
                told, memory = talk(child, sampled)
                if told:
                    return {**json.loads(told), **memory}
                in_time = limit.is_alive()
                child.wait()
                log.seek(0)
                last = (log.read().strip().splitlines() or [f"ended with {child.returncode}"])[-1]
                return {"failed": last[:70] if in_time else f"nothing in {limit_s} s"}
            finally:
                limit.cancel()
                end_tree(child.pid)
                child.communicate()


def talk(child, sampled):
    """Lets the child begin; its last line, which is empty if it ends before, and its memory."""
    if child.stdout.readline() != "ready\n":
        return "", {}
    with Sampler(child.pid) if sampled else contextlib.nullcontext() as sampler:
        child.stdin.write("go\n")
        child.stdin.flush()
        told = child.stdout.readline()
    return told, {"before": sampler.before, "peak": sampler.peak} if sampled else {}


class Sampler:
    """The memory of a process and all below it."""

    def __init__(self, pid):
        self.pid, self.stop = pid, threading.Event()
        self.before = self.peak = self.read()
        self.thread = threading.Thread(target=self.sample)

    def read(self):
        return held_kib([self.pid, *descendants(self.pid)])

    def sample(self):
        while not self.stop.wait(SAMPLE_EVERY_S):
            self.peak = max(self.peak, self.read())

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()
        self.peak = max(self.peak, self.read())


def end_tree(pid):
    for each in [*descendants(pid), pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def tree_version():
    return subprocess.check_output(["git", "describe", "--always", "--dirty"], cwd=ROOT, text=True).strip()
