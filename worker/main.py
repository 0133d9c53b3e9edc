"""The program inside every session: it holds an agent's namespace and runs its cells.

The host starts `python3 -s -u -c STUB RFD WFD` with a cleared environment (PATH, HOME, LANG,
TZ=UTC, PYTHONHASHSEED=0). STUB is RLM_WORKER_STUB of src/runtime/stub.h: it takes '' from
sys.path, reads u32 length and so many bytes of source from RFD, and runs that source, the parts of
this directory as scripts/join-worker.py joins them, in a module of its own with
`protocol = (RFD, WFD)`. A host that forks warm interpreters runs the source without `protocol`,
calls `preload()` once, and `serve(RFD, WFD)` in each child. The engine's own workers have a socket
as RFD, for it passes descriptors, and a pipe as WFD, whose reader wakes sooner.

The frames are those of docs/protocol.md. Only the standard library, Python 3.8 and newer.

Who does what:

- The main thread blocks in recv while idle, runs the cell itself and sends `finished`. There is no
  hand-over to another thread in an ordinary cell.
- The monitor thread sleeps in poll. When a cell lasts it listens to the host's stream too, so that
  `yield` and `interrupt` are heard in mid-computation; it also empties the pipe that stands on
  descriptors 1 and 2, and sends `output` frames. Cells of microseconds pass it unnoticed.
- Whoever reads the stream holds `Session.reading`: the main thread while idle, while it waits in a
  synchronous host call and while its event loop has nothing to do; the monitor otherwise.
- An interrupt is a flag, set by the reader. If the reader is the monitor it also sends a signal
  (SIGRTMIN + 7, so that a SIGINT or SIGALRM handler of the agent's does not stand in the way),
  every 10 ms until the exception has been raised. The handler raises only when the agent's code is
  at work, never inside the worker's own.

A worker starts for every agent, so what its parts import is written in C or loaded by every
interpreter: `_ast` for `ast`, `_socket` for `socket`, and so on. The rest is imported where it is
needed; see `Imports`.
"""
import _warnings
import builtins
import os
import select
import sys
from _json import encode_basestring_ascii as quote

from .errors import AGENT_CLASSES
from .descriptors import write_all
from .streams import NoInput, OutputStream
from .reports import describe_failure, show_thread_errors
from .frames import READY, leave
from .inputs import Inputs
from .interrupts import install_signals
from .session import Session
from .loops import install_asyncio
from .api import Api, is_name
from .cells import Cells
from .file_tools import FILE_TOOLS

# A worker that is told nothing for so long has been started ahead.
SPARE_AFTER_S = 0.05


class ForkWarning:
    """Matches Python's warning of threads in a process that forks: the monitor is no danger to a
    child, as it takes no lock that one needs. Stands where a compiled pattern would."""

    @staticmethod
    def match(text):
        return "use of fork" in text


def preload():
    """Imports what sessions may need; a warm interpreter does it once before it forks."""
    import asyncio, contextvars, ctypes, inspect, random, selectors, threading, traceback


def open_session(session, message):
    """Makes the namespace of the agent that `open` describes."""
    session.output.set_limit(message.get("limits", {}).get("output_bytes", 1 << 20))
    session.imports.when("random", lambda random: random.seed(message.get("seed", "")))
    api = Api(session)
    cells = Cells(session, api)
    cells.stdout, cells.stderr = sys.stdout, sys.stderr
    namespace = cells.namespace
    for kind in AGENT_CLASSES:
        namespace[kind.__name__] = kind
    if message.get("file_tools"):
        for tool in FILE_TOOLS:
            namespace[tool.__name__] = tool
    namespace["ENV"] = dict(message.get("env") or {})
    for spec in message.get("tools") or ():
        namespace[spec["name"]] = api.tool(spec)
    for function in api.functions:
        cells.names.bind(function.__name__, function)
    bind_inputs(cells.names, message.get("inputs") or {}, set(namespace))
    cells.bound = set(namespace)
    session.last_id = message.get("last_call", 0)
    return cells


def bind_inputs(names, inputs, taken):
    names.bind("INPUTS", Inputs(inputs))
    for name, value in inputs.items():
        if is_name(name) and not (hasattr(builtins, name) or name in taken or name == "INPUTS"):
            names.bind(name, value, is_input=True)


def ready_message(session):
    why = session.values.why
    mapped = '"mapped":true' if why is None else '"mapped":false,"why":%s' % quote(why)
    return ('{"python":"%d.%d.%d","implementation":%s,"executable":%s,"pid":%d,%s}' % (
        *sys.version_info[:3], quote(sys.implementation.name), quote(sys.executable or ""),
        os.getpid(), mapped)).encode()


def forget_host_in_child(session):
    """A process that the agent forks keeps its namespace, and loses the host."""
    session.forked = True
    session.in_cell = False
    for stream in (sys.__stdout__, sys.__stderr__):
        stream.write = stream.write_plainly
    for fd in {session.channel.rfd, session.channel.wfd, session.output.pipe,
               session.monitor.wake_read, session.monitor.wake_write}:
        try:
            os.close(fd)
        except OSError:
            pass


def keep_output_at_exit(session):
    """`os._exit`, which runs nothing more, shall not take with it what the cell has printed."""
    def _exit(status):
        session.monitor.show_now()
        leave(status)

    os._exit = _exit


def serve(rfd, wfd):
    """Runs the session that the host opens over these descriptors; does not return."""
    try:
        session = Session(rfd, wfd)
    except (OSError, MemoryError) as e:
        write_all(2, describe_failure(e).encode())
        leave(1)
    try:
        run_session(session)
    except BaseException as e:
        session.channel.fatal(describe_failure(e))


def run_session(session):
    session.output.open_pipe()
    sys.stdin = sys.__stdin__ = NoInput(open(0, "rb", closefd=False), "utf-8", "surrogateescape")
    sys.stdout = sys.__stdout__ = OutputStream(session, 1, "<stdout>")
    sys.stderr = sys.__stderr__ = OutputStream(session, 2, "<stderr>")
    sys.argv = [""]
    sys.setswitchinterval(0.001)
    _warnings.filters.insert(0, ("ignore", ForkWarning, DeprecationWarning, None, 0))
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)
    session.reading.acquire()
    session.reader = session.main_thread
    if not select.select([session.channel.rfd], [], [], SPARE_AFTER_S)[0]:
        preload()  # it was started ahead of its session: there is time now
    while session.opened is None:
        session.pump(True)
    session.imports.when("asyncio", lambda asyncio: install_asyncio(session, asyncio))
    session.imports.when("threading", show_thread_errors)
    install_signals(session)
    cells = open_session(session, session.opened)
    session.monitor.start()
    keep_output_at_exit(session)
    os.register_at_fork(after_in_child=lambda: forget_host_in_child(session))
    session.channel.send_frame(READY, ready_message(session))
    while True:
        while session.starts:
            start = session.starts.popleft()
            if "recovered" in start:
                cells.namespace["RECOVERED"] = start["recovered"]
            session.begin_cell(start["cell"])
            cells.run(start["cell"], start["code"])
            del start
        session.pump(True)


if "protocol" in globals():
    serve(*globals()["protocol"])
