"""The program inside every session: it holds an agent's namespace and runs its cells.

The host starts `python3 -s -u -c STUB RFD WFD` with a cleared environment (PATH, HOME, LANG,
TZ=UTC, PYTHONHASHSEED=0). STUB is RLM_WORKER_STUB of src/runtime/stub.h: it takes '' from
sys.path, reads u32 length and so many bytes of source from RFD, and runs that source, the parts of
this directory as scripts/join-worker.py joins them, in a module of its own with
`protocol = (RFD, WFD)`. A host that forks warm interpreters runs the source without `protocol`,
calls `preload()` once, and `serve(RFD, WFD)` in each child. The engine's own workers have a socket
as RFD, for it passes descriptors, and a pipe as WFD, whose reader wakes sooner.

The frames are those of docs/protocol.md. Only the standard library, Python 3.8 and newer.

What changes the process it runs in is in process.py alone. All else serves as well where the process is
somebody else's and holds several sessions, each in a thread that is its main one: the Python package imports
the joined text for that, and has a place of its own for them.

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
from .reports import describe_failure
from .descriptors import write_all
from .session import Session
from .process import Process, leave, take_descriptors


def preload():
    """Imports what sessions may need; a warm interpreter does it once before it forks."""
    import asyncio, contextvars, ctypes, inspect, random, selectors, threading, traceback


def serve(rfd, wfd):
    """Runs the session that the host opens over these descriptors; does not return."""
    try:
        place = Process()
        session = Session(*take_descriptors(rfd, wfd), place)
    except (OSError, MemoryError) as e:
        write_all(2, describe_failure(e).encode())
        leave(1)
    try:
        place.run(session, preload)
    except BaseException as e:
        session.channel.fatal(describe_failure(e))


if "protocol" in globals():
    serve(*globals()["protocol"])
