"""Errors in words: tracebacks as the agent should see them, with its own lines only."""
import errno
import os
import sys

from .errors import CellEnded, SessionOver, StopLoop
from .output import cut_middle

WORKER_FILE = cut_middle.__code__.co_filename
TRACEBACK_CHARS = 20000
TOO_MANY_FILES = ("the session's process has as many files open as it may (%d); close files when "
                  "they are no longer needed")


def render(error):
    """The traceback as the agent should see it: its own lines, and no frame of the worker."""
    try:
        import traceback

        report = traceback.TracebackException(type(error), error, error.__traceback__)
        seen = set()
        todo = [report]
        while todo:
            part = todo.pop()
            if part is None or id(part) in seen:
                continue
            seen.add(id(part))
            kept = [f for f in part.stack if f.filename != WORKER_FILE]
            for frame in kept:
                frame.filename = shown_file(frame.filename)
            first = next((i for i, f in enumerate(kept) if f.filename.startswith("<cell ")), 0)
            part.stack[:] = kept[first:]
            todo += [part.__cause__, part.__context__]
            todo += getattr(part, "exceptions", None) or ()
        lines = list(report.format())
        if not report.stack and lines and lines[0].startswith("Traceback"):
            lines = list(report.format_exception_only())
        return cut_middle(unmarked("".join(lines)), TRACEBACK_CHARS)
    except Exception:
        return render_plainly(error)


def shown_file(name):
    """How a file is called in tracebacks. Where sessions run in somebody's process, that one has another."""
    return name


def unmarked(text):
    """Without the marks of cells (`cell_mark` of a place) by which sessions of one process differ."""
    if "<cell " not in text or " #" not in text:
        return text
    import re

    return re.sub(r"<cell (\d+) #\d+>", r"<cell \1>", text)


def render_plainly(error):
    """The same where there are no descriptors or memory left to import and use `traceback`."""
    lines = []
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if code.co_filename.startswith(("<cell ", "<tool ")):
            lines.append('  File "%s", line %d, in %s\n' % (
                code.co_filename, step.tb_lineno, code.co_name))
        step = step.tb_next
    if lines:
        lines.insert(0, "Traceback (most recent call last):\n")
    return cut_middle("".join(lines), TRACEBACK_CHARS) + describe_exception(error) + "\n"


def describe_exception(error):
    message = describe_message(error)
    return "%s: %s" % (type(error).__name__, message) if message else type(error).__name__


def describe_message(error):
    try:
        message = str(error)
    except BaseException:
        message = "<its str() failed>"
    if isinstance(error, KeyError) and len(error.args) == 1 and isinstance(error.args[0], str):
        message = repr(error.args[0])
    return cut_middle(unmarked(message), TRACEBACK_CHARS)


def show_thread_errors(threading):
    threading.excepthook = show_thread_error


def show_thread_error(args):
    """`threading.excepthook`: as threading's own, but with the agent's lines only."""
    if args.exc_value is not None and not isinstance(args.exc_value, (SystemExit, CellEnded, SessionOver)):
        sys.stderr.write("Exception in thread %s:\n%s" % (
            args.thread.name if args.thread is not None else "?", render(args.exc_value)))


def show_loop_error(loop, context):
    """The exception handler of event loops: what asyncio would log, with the agent's lines only."""
    error = context.get("exception")
    if not isinstance(error, (CellEnded, StopLoop, SessionOver)):
        sys.stderr.write("%s%s" % (context.get("message", "error in the event loop"),
                                   ":\n" + render(error) if error is not None else "\n"))


def describe_failure(error):
    """What went wrong in the worker itself."""
    lack = describe_lack(error)
    if lack is not None:
        return lack
    try:
        import traceback

        return "".join(traceback.format_exception(type(error), error, error.__traceback__))[-4000:]
    except Exception:
        return describe_exception(error)


def describe_lack(error):
    """What the session's process has run out of; None if that is not the trouble."""
    number = getattr(error, "errno", None)
    if isinstance(error, MemoryError) or number == errno.ENOMEM:
        return "the session's process has no memory left (%s)" % describe_exception(error)
    if number == errno.EMFILE:
        return TOO_MANY_FILES % os.sysconf("SC_OPEN_MAX")
    if number == errno.ENFILE:
        return "the machine has as many files open as it can"
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return "the session's process may start no more threads (%s)" % describe_exception(error)
    return None
