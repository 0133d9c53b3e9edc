"""A session that has a process of its own."""
import _signal
import _warnings
import builtins
import io
import os
import select
import sys
from os import _exit

from .descriptors import move_high
from .imports import Imports
from .interrupts import SIGNAL, install_signals
from .loops import changes_of_asyncio
from .monitor import Monitor
from .names import KEEP
from .opening import open_session, run_cells
from .reports import show_thread_errors
from .streams import NoInput, OutputStream, SWITCH_SECONDS

# A worker that is told nothing for so long has been started ahead.
SPARE_AFTER_S = 0.05


class ForkWarning:
    """Matches Python's warning of threads in a process that forks: the monitor is no danger to a
    child, as it takes no lock that one needs. Stands where a compiled pattern would."""

    @staticmethod
    def match(text):
        return "use of fork" in text


def leave(status=0):
    """Ends the process at once; the host ends what it started."""
    _exit(status)


class Process:
    """The place of a session that has a process of its own: there it may change what it likes."""

    cell_mark = ""  # in the names of cells, where there are others
    tools = {}  # functions that the session has without a source of them

    def __init__(self):
        self.imports = Imports()
        self.monitor = Monitor()
        self.leave = leave

    def close(self):
        """The host has closed the session."""
        flush_files()
        leave()

    def interrupt(self, session):
        _signal.pthread_kill(session.main_thread, SIGNAL)

    def leave_agent(self):
        """The cell's code has ended; an interrupt that came too late strikes here at the latest."""

    def adopt(self, module, keep):
        """The `__builtins__` of the agent's module, with `keep` in them."""
        sys.modules["__main__"] = module
        setattr(builtins, KEEP, keep)
        return builtins

    def new_loop(self, asyncio):
        return asyncio.new_event_loop()

    def restore_streams(self):
        """Whether the cell had replaced the session's streams."""
        if getattr(sys, "stdout", None) is self.stdout and getattr(sys, "stderr", None) is self.stderr:
            return False
        sys.stdout, sys.stderr = self.stdout, self.stderr
        return True

    def install_streams(self, session):
        sys.stdin = NoInput(open(0, "rb", closefd=False), "utf-8", "surrogateescape")
        self.stdout = sys.stdout = OutputStream(session, 1, "<stdout>")
        self.stderr = sys.stderr = OutputStream(session, 2, "<stderr>")
        sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr

    def settle(self):
        """Makes the process one that runs cells and nothing else."""
        sys.argv = [""]
        sys.setswitchinterval(SWITCH_SECONDS)
        _warnings.filters.insert(0, ("ignore", ForkWarning, DeprecationWarning, None, 0))
        if hasattr(sys, "set_int_max_str_digits"):
            sys.set_int_max_str_digits(0)

    def prepare_modules(self, session):
        when = self.imports.when
        seed = session.opened.get("seed", "")
        when("random", lambda random: random.seed(seed))
        when("asyncio", lambda asyncio: changes_of_asyncio(lambda: session, asyncio)[0]())
        when("threading", show_thread_errors)

    def run(self, session, preload):
        """The whole session."""
        session.output.open_pipe()
        self.install_streams(session)
        self.settle()
        if not select.select([session.channel.rfd], [], [], SPARE_AFTER_S)[0]:
            preload()  # it was started ahead of its session: there is time now
        session.open()
        self.prepare_modules(session)
        install_signals(session)
        cells = open_session(session)
        self.imports.when("warnings", lambda warnings: note_unawaited(warnings, cells))
        self.monitor.add(session)
        self.monitor.start()
        keep_output_at_exit(session)
        os.register_at_fork(after_in_child=lambda: forget_host_in_child(session))
        run_cells(session, cells)


def take_descriptors(rfd, wfd):
    """The stream's descriptors, out of the way of what the agent's code opens."""
    moved = [move_high(fd) for fd in sorted({rfd, wfd}, key=(rfd, wfd).index)]
    for fd in {rfd, wfd}:
        if fd > 2:
            os.close(fd)
    return moved[0], moved[-1]


def note_unawaited(warnings, cells):
    warnings._warn_unawaited_coroutine = cells.note_unawaited


def flush_files():
    """Writes out what open files still hold, as the end of an interpreter does."""
    import gc

    for thing in gc.get_objects():
        if type(thing) in (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom):
            try:
                thing.flush()
            except (OSError, ValueError):
                pass


def forget_host_in_child(session):
    """A process that the agent forks keeps its namespace, and loses the host."""
    forget_host(session)
    for stream in (session.place.stdout, session.place.stderr):
        stream.write = stream.write_plainly


def forget_host(session):
    session.forked = True
    session.in_cell = False
    for fd in {session.channel.rfd, session.channel.wfd, session.output.pipe,
               session.output.spare_end, session.monitor.wake_read, session.monitor.wake_write}:
        try:
            os.close(fd)
        except OSError:
            pass


def keep_output_at_exit(session):
    """`os._exit`, which runs nothing more, shall not take with it what the cell has printed."""
    def _exit_with_output(status):
        session.display.show_now()
        leave(status)

    os._exit = _exit_with_output
