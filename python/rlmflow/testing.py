"""A check of runtimes: whether one keeps what every runtime promises.

    import rlmflow.testing
    rlmflow.testing.check_runtime(MyRuntime(...))

Each check is a run of a scripted model, whose agents try the runtime from inside; the same ones are rlm_runtime_check
of the C library. They need no key and no network, and take some twenty seconds.
"""
from __future__ import annotations

import glob
import os
import time
from typing import Any, Callable, Iterable, List, NamedTuple, Optional, Tuple

from . import _engine
from ._arguments import MOST_INT64, Arguments
from .clients import ScriptedClient
from .flow import Flow, RunEnded
from .runtimes import Runtime

__all__ = ["Checked", "RuntimeFault", "check_runtime"]

MAX_TIME = 120.0  # seconds of a check
SETTLE = 0.5  # seconds for the first run's session to go
PATIENCE = 5.0  # seconds for what goes on ending after its run
THREAD_PATIENCE = 20.0  # the same, where it cannot be killed
LINES = 65536  # of the big text, which are repeated


class Checked(NamedTuple):
    """What came of one check: its name, what must hold, and what was not so (None: all was)."""

    name: str
    promise: str
    wrong: Optional[str]


class RuntimeFault(AssertionError):
    """A runtime does not keep what it must: `checked` are all checks, the message names those that failed."""

    def __init__(self, runtime: Any, checked: List[Checked]):
        failed = [c for c in checked if c.wrong is not None]
        lines = [f"{type(runtime).__name__} failed {len(failed)} of {len(checked)} checks:"]
        super().__init__("\n".join(lines + [f"- {c.name} ({c.promise}): {c.wrong}" for c in failed]))
        self.checked = checked


class _Check(NamedTuple):
    """A struct rlm_conformance_check."""

    name: str
    promise: str
    script: str
    reason: Optional[str]
    takes_text: bool
    own_process: bool
    max_iters: int
    exec_timeout_ms: int
    max_time_ms: int


_LEAKS = Checked("leaks", "no process and no descriptor is left when all runs have ended", None)


def check_runtime(runtime: Runtime, *, text_size: int = 64 << 20, without: Iterable[str] = (),
                  on_checked: Optional[Callable[[Checked], Any]] = None) -> List[Checked]:
    """Checks a runtime that nothing else uses meanwhile, and returns what came of each check; raises `RuntimeFault`
    if one failed. `text_size`: characters of the big input (a gigabyte is worth a try). `without`: names of checks
    that are left out. Where sessions are threads of this process (`runtime.in_process`), those that would end it
    are. `on_checked` is called with each as it comes."""
    checks = [_Check(*c) for c in _engine.conformance_checks()]
    checked = Arguments("check_runtime")
    if not isinstance(runtime, Runtime):
        raise checked.wrong("runtime", runtime, "it must be a Runtime, as SubprocessRuntime() is", TypeError)
    size = (checked.whole("text_size", text_size, 16, MOST_INT64, "characters") or 0) // 16 * 16
    left_out = set(checked.texts("without", without) or ())
    unknown = left_out - {c.name for c in checks} - {_LEAKS.name}
    if unknown:
        raise ValueError(f"without={sorted(unknown)}: there are no such checks; there are "
                         f"{', '.join(c.name for c in checks)}, {_LEAKS.name}")
    done: List[Checked] = []

    def tell(checked: Checked) -> None:
        done.append(checked)
        if on_checked is not None:
            on_checked(checked)

    before = None
    for check in checks:
        if check.name in left_out or (check.own_process and runtime.in_process):
            continue
        tell(Checked(check.name, check.promise, _run(runtime, check, size)))
        if before is None:  # what the first run makes once for all stays
            before = _settle((0, 0), SETTLE)
    if before is not None and _LEAKS.name not in left_out:
        tell(_LEAKS._replace(wrong=_leaks(before, THREAD_PATIENCE if runtime.in_process else PATIENCE)))
    if any(c.wrong is not None for c in done):
        raise RuntimeFault(runtime, done)
    return done


def _run(runtime: Runtime, check: _Check, text_size: int) -> Optional[str]:
    """What was wrong."""
    limits: dict = {"max_time": check.max_time_ms / 1000 or MAX_TIME}
    if check.exec_timeout_ms:
        limits["exec_timeout"] = check.exec_timeout_ms / 1000
    if check.max_iters:
        limits["max_iters"] = check.max_iters
    inputs = {"text": _text(text_size), "size": text_size} if check.takes_text else None
    flow = Flow(ScriptedClient(check.name, text=check.script), runtime=runtime, **limits)
    wanted = check.reason or "answered"
    try:
        answer = flow.run("check", inputs=inputs)
        flow.close_repls()
    except RunEnded as e:
        return None if e.reason == wanted else f"its run ended with {e.reason!r} instead of {wanted!r}: {e.message}"
    if check.reason is not None:
        return f"its run was answered with {answer!r} instead of ending with {wanted!r}"
    return None if answer == "ok" else answer


def _text(size: int) -> str:
    lines = "".join(f"line {i:010d}\n" for i in range(LINES))
    return (lines * (size // len(lines) + 1))[:size]


def _held() -> Tuple[int, int]:
    """How many descriptors and child processes this process has."""
    children = 0
    for path in glob.glob("/proc/self/task/*/children"):
        try:
            with open(path) as file:
                children += len(file.read().split())
        except OSError:
            pass  # a thread that has ended
    return len(os.listdir("/proc/self/fd")), children


def _settle(before: Tuple[int, int], seconds: float) -> Tuple[int, int]:
    """What is held when it is no more than before, or after so long."""
    end = time.monotonic() + seconds
    held = _held()
    while (held[0] > before[0] or held[1] > before[1]) and time.monotonic() < end:
        time.sleep(0.05)
        held = _held()
    return held


def _leaks(before: Tuple[int, int], seconds: float) -> Optional[str]:
    after = _settle(before, seconds)
    if after[0] > before[0] or after[1] > before[1]:
        return (f"after the first run there were {before[0]} descriptors and {before[1]} child processes, after all "
                f"runs there are {after[0]} and {after[1]}")
    return None
