"""Errors in words: tracebacks as the agent should see them, with its own lines only."""
import sys

from .errors import CellEnded, StopLoop
from .output import cut_middle

WORKER_FILE = "<worker>"
TRACEBACK_CHARS = 20000


def render(error):
    """The traceback as the agent should see it: its own lines, and no frame of the worker."""
    import traceback

    try:
        report = traceback.TracebackException(type(error), error, error.__traceback__)
        seen = set()
        todo = [report]
        while todo:
            part = todo.pop()
            if part is None or id(part) in seen:
                continue
            seen.add(id(part))
            kept = [f for f in part.stack if f.filename != WORKER_FILE]
            first = next((i for i, f in enumerate(kept) if f.filename.startswith("<cell ")), 0)
            part.stack[:] = kept[first:]
            todo += [part.__cause__, part.__context__]
            todo += getattr(part, "exceptions", None) or ()
        lines = list(report.format())
        if not report.stack and lines and lines[0].startswith("Traceback"):
            lines = list(report.format_exception_only())
        return cut_middle("".join(lines), TRACEBACK_CHARS)
    except Exception:
        return describe_exception(error) + "\n"


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
    return cut_middle(message, TRACEBACK_CHARS)


def show_thread_errors(threading):
    threading.excepthook = show_thread_error


def show_thread_error(args):
    """`threading.excepthook`: as threading's own, but with the agent's lines only."""
    if args.exc_value is not None and not isinstance(args.exc_value, (SystemExit, CellEnded)):
        sys.stderr.write("Exception in thread %s:\n%s" % (
            args.thread.name if args.thread is not None else "?", render(args.exc_value)))


def show_loop_error(loop, context):
    """The exception handler of event loops: what asyncio would log, with the agent's lines only."""
    error = context.get("exception")
    if not isinstance(error, (CellEnded, StopLoop)):
        sys.stderr.write("%s%s" % (context.get("message", "error in the event loop"),
                                   ":\n" + render(error) if error is not None else "\n"))


def describe_failure(error):
    """What went wrong in the worker itself."""
    import traceback

    return "".join(traceback.format_exception(type(error), error, error.__traceback__))[-4000:]
