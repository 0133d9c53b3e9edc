"""Compiling and running cells, and tidying up behind them."""
import _ast
import os
import sys
from _collections_abc import coroutine as Coroutine
from errno import EMFILE

from .agent_code import calls_agent
from .errors import CellEnded, CellInterrupted, SessionOver, StopLoop
from .json_text import quote_all
from .output import cut_middle, gap
from .reports import describe_exception, describe_lack, describe_message, render
from .names import Names, stores_of

AWAITS = _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
IS_COROUTINE = 0x80
ECHO_CHARS = 64 * 1024
MOST_NAMES = 500  # that a cell's end tells of
SETTLE_SECONDS = 1.0  # for cancelled tasks at the end of a cell
MAX_NOTES = 20  # of a cell


def future_flags():
    import __future__

    flags = 0
    for name in __future__.all_feature_names:
        flags |= getattr(__future__, name).compiler_flag
    return flags & ~0x1f


@calls_agent
def execute(code, namespace):
    return eval(code, namespace)


@calls_agent
async def execute_in_loop(body, last, namespace):
    if body is not None:
        value = eval(body, namespace)
        if body.co_flags & IS_COROUTINE:
            await value
    if last is None:
        return None
    value = eval(last, namespace)
    if last.co_flags & IS_COROUTINE:
        value = await value
    if type(value) is Coroutine:
        value = await value
    return value


@calls_agent
def run_in_loop(loop, coroutine):
    return loop.run_until_complete(coroutine)


@calls_agent
def show(value):
    """What the REPL echoes; huge texts are cut before they are spelled out."""
    if type(value) in (str, bytes, bytearray) and len(value) > 2 * ECHO_CHARS:
        head, tail = value[:ECHO_CHARS // 2], value[-ECHO_CHARS // 2:]
        return "%r%s%r" % (head, gap(" ", len(value) - len(head) - len(tail), "left out"), tail)
    return cut_middle(repr(value), 2 * ECHO_CHARS, " ")


def counted(notes):
    """Each note once, with how often it came."""
    times = {}
    for note in notes:
        times[note] = times.get(note, 0) + 1
    texts = ["%d times: %s" % (n, note) if n > 1 else note for note, n in times.items()]
    if len(texts) > MAX_NOTES:
        texts[MAX_NOTES:] = ["%d more notes were left out" % (len(texts) - MAX_NOTES)]
    return texts


class Cells:
    """Compiles and runs the cells of one namespace."""

    def __init__(self, session, api):
        self.session = session
        self.api = api
        self.place = session.place
        self.module = type(sys)("__main__")
        self.namespace = self.module.__dict__
        self.names = Names(self.namespace)
        self.namespace["__builtins__"] = self.place.adopt(self.module, self.names.keep)
        self.loop = None
        session.get_loop = self.get_loop
        self.futures = 0
        self.never_awaited = []
        self.sources = {}
        self.bound = set()
        self.linecache = None
        session.imports.when("linecache", self.cache_all_lines)

    # Lines for tracebacks: kept as they came until somebody wants to see one.

    def cache_all_lines(self, linecache):
        self.linecache = linecache
        for filename, source in self.sources.items():
            self.cache_lines(filename, source)

    def cache_lines(self, filename, source):
        self.linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)

    def add_source(self, filename, source):
        self.sources[filename] = source
        if self.linecache is not None:
            self.cache_lines(filename, source)

    # Compiling.

    def compile(self, filename, source):
        """(body, last): code to execute, and the last expression, whose value is shown."""
        flags = AWAITS | self.futures
        is_line = source.find("\n") in (-1, len(source) - 1)
        if is_line and ":=" not in source:
            try:
                return None, compile(source, filename, "eval", flags, True)
            except SyntaxError:
                pass
        guarded = self.names.appear_in(source)
        if is_line and not guarded and ";" not in source:
            return self.compiled(source, compile(source, filename, "exec", flags, True)), None
        tree = compile(source, filename, "exec", flags | _ast.PyCF_ONLY_AST, True)
        last = None
        if tree.body and isinstance(tree.body[-1], _ast.Expr):
            if not guarded or self.names.kept.keys().isdisjoint(stores_of(tree.body[-1])):
                last = _ast.Expression(tree.body.pop().value)
                last = compile(last, filename, "eval", flags, True)
        if guarded:
            self.names.guard(tree)
        if not tree.body:
            return None, last
        return self.compiled(source, compile(tree, filename, "exec", flags, True)), last

    def compiled(self, source, code):
        """`from __future__ import` holds for the cells that follow too."""
        if "__future__" in source:
            self.futures |= code.co_flags & future_flags()
        return code

    # Running.

    def run(self, number, source):
        session = self.session
        filename = "<cell %d%s>" % (number, self.place.cell_mark)
        self.add_source(filename, source)
        error = None
        try:
            try:
                session.check_interrupt()
                body, last = self.compile(filename, source)
                self.run_code(body, last)
            finally:
                self.place.leave_agent()
        except (CellEnded, StopLoop):
            session.ended = True
        except SessionOver:
            raise
        except BaseException as e:
            if not (session.ended and isinstance(e, CellInterrupted)):
                error = self.describe_error(e)
        if session.forked:
            os._exit(1 if error else 0)
        notes = []
        if self.api.unstarted or self.api.stop is not None or self.loop is not None:
            self.tidy_loop(error, notes)
        if self.never_awaited:
            self.add_unawaited_notes(notes)
        notes += self.names.restore()
        if self.place.restore_streams():
            notes.append("sys.stdout or sys.stderr was left replaced; the session's own are back")
        if session.output.restore_descriptors():
            notes.append("descriptor 1 or 2 was left closed or redirected; the session's own are back")
        session.end_cell(error, counted(notes) if notes else notes, self.changed_names())

    def changed_names(self):
        """The members of `finished` that say which names the cell has bound anew, and which it has not
        left bound."""
        if self.namespace.keys() == self.bound:
            return ""
        before, self.bound = self.bound, set(self.namespace)
        return ',"bound":%s,"unbound":%s' % tuple(
            quote_all(sorted(name for name in names if isinstance(name, str))[:MOST_NAMES])
            for names in (self.bound - before, before - self.bound))

    def run_code(self, body, last):
        flags = body.co_flags if body is not None else 0
        flags |= last.co_flags if last is not None else 0
        if flags & IS_COROUTINE:
            value = run_in_loop(self.get_loop(), execute_in_loop(body, last, self.namespace))
        else:
            if body is not None:
                execute(body, self.namespace)
            if last is None:
                return
            value = execute(last, self.namespace)
            if type(value) is Coroutine:
                value = run_in_loop(self.get_loop(), value)
        if value is not None:
            self.echo(value)

    def echo(self, value):
        try:
            text = show(value)
        except Exception as e:
            text = "<%s object; its repr() raised %s>" % (type(value).__name__, type(e).__name__)
            self.session.output.add(text + "\n")
            raise
        self.session.output.drain()
        self.session.output.add(text + "\n")

    def get_loop(self):
        import asyncio

        if self.loop is None or self.loop.is_closed():
            self.loop = self.place.new_loop(asyncio)
        asyncio.set_event_loop(self.loop)
        return self.loop

    # After the code.

    def tidy_loop(self, error, notes):
        """Awaits our coroutines that were forgotten, cancels the tasks that still run."""
        try:
            if self.api.stop is not None:
                self.api.stop.cancel()
                self.api.stop = None
            self.cancel_tasks(notes)
            for coroutine in self.api.take_unstarted():
                if error is None and not self.session.ended and not self.session.interrupt:
                    self.await_forgotten(coroutine, notes)
                else:
                    coroutine.close()
                    notes.append("%s(...) was not awaited and did nothing" % coroutine.__name__)
            self.cancel_tasks(notes)
        except CellEnded:
            pass
        except SessionOver:
            raise
        except BaseException as e:
            notes.append("ending what was left of the cell: %s" % describe_exception(e))

    def await_forgotten(self, coroutine, notes):
        name = coroutine.__name__
        held_by = [k for k, v in self.namespace.items() if v is coroutine]
        try:
            value = run_in_loop(self.get_loop(), coroutine)
        except Exception as e:
            notes.append("%s(...) was not awaited; it ran at the end of the cell and failed: %s"
                         % (name, describe_exception(e)))
            return
        for variable in held_by:
            self.namespace[variable] = value
        where = "its result is now in `%s`" % held_by[0] if held_by else "its result is lost"
        notes.append("%s(...) was not awaited; it ran at the end of the cell and %s; write "
                     "`... = await %s(...)`" % (name, where, name))

    def cancel_tasks(self, notes):
        if self.loop is None or self.loop.is_closed():
            return
        import asyncio

        tasks = [t for t in asyncio.all_tasks(self.loop) if not t.done()]
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        names = [getattr(t.get_coro(), "__name__", "?") for t in tasks]
        own = [n for n in names if n != "execute_in_loop"]
        if own:
            notes.append("%s still running at the end of the cell and cancelled: %s" % (
                "1 task was" if len(own) == 1 else "%d tasks were" % len(own),
                ", ".join(sorted(own)[:20])))
        done, stubborn = run_in_loop(self.loop, asyncio.wait(tasks, timeout=SETTLE_SECONDS))
        for task in done:
            if not task.cancelled():
                task.exception()
        if stubborn:
            notes.append("%d tasks did not end when they were cancelled" % len(stubborn))

    def note_unawaited(self, coroutine):
        self.never_awaited.append(coroutine.__qualname__)

    def add_unawaited_notes(self, notes):
        names, self.never_awaited = self.never_awaited, []
        own = [n for n in names if n not in ("execute_in_loop", "Cells.cancel_tasks")]
        if own:
            notes.append("never awaited, so never run: %s" % ", ".join(sorted(set(own))[:20]))

    # Errors.

    def describe_error(self, error):
        """The ERROR of an exception that ended the cell."""
        message = describe_message(error)
        name = type(error).__name__
        if isinstance(error, SyntaxError) and error.text is None and error.lineno:
            lines = self.sources.get(error.filename, "").splitlines(True)
            error.text = "".join(lines[error.lineno - 1:error.lineno]) or None
        if isinstance(error, SystemExit):
            message = "SystemExit%s: the session goes on; call done(answer) to end the agent" % (
                "" if error.code is None else ": %s" % message)
        text = render(error)
        if isinstance(error, TypeError) and "coroutine" in message and self.api.unstarted:
            called = next(iter(self.api.unstarted.values())).__name__
            hint = "%s(...) must be awaited: write `await %s(...)`" % (called, called)
            message = "%s; %s" % (message, hint)
            text += hint + "\n"
        if getattr(error, "errno", None) == EMFILE:
            text += describe_lack(error) + "\n"
        return {"type": name, "message": message, "traceback": text}
