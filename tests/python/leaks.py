"""What a process holds: threads, descriptors and children."""
import gc
import os
import threading
import time
from pathlib import Path

SECONDS = 30
# One of them waits for sessions while there are flows, and one watches those that there are.
KEPT = ("rlmflow session", "rlmflow monitor")


def held():
    children = []
    for task in Path("/proc/self/task").iterdir():
        try:
            children += (task / "children").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            pass  # a thread that has just ended
    files = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            files.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            pass  # that of this look
    kinds = sorted(f.partition(":")[0] for f in files)
    threads = sorted(t.name for t in threading.enumerate() if t.name not in KEPT)
    return {"threads": threads, "files": kinds, "children": len(children)}


def wait_until(is_so):
    until = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < until, held()
        time.sleep(0.02)


def when_at_rest():
    """What is held when nothing goes on."""
    gc.collect()
    wait_until(lambda: held()["threads"] == ["MainThread"])
    return held()


def assert_comes_back_to(before):
    """Waits for what ends by itself."""
    gc.collect()
    until = time.monotonic() + SECONDS
    while (now := held()) != before:
        assert time.monotonic() < until, (now, before)
        time.sleep(0.02)
