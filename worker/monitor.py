"""The thread that looks after a cell while the main thread is at work in it."""
import _signal
import _thread
import os
import select
from _json import encode_basestring_ascii as quote
from time import monotonic

from .descriptors import move_high
from .reports import describe_failure
from .frames import OUTPUT
from .interrupts import SIGNAL

OUTPUT_MS = 200  # between two `output` frames
FLUSH_SHARE = 0.1  # of the time goes into `output` frames where the code flushes all the time
INTERRUPT_MS = 10  # between two signals of an interrupt that has not been raised yet
TICK_MS = 3  # of the monitor; two of them must be less than the 10 ms in which `yield` is answered
QUIET_TICKS = 30
OUTPUT_FRAME_CHARS = 48 * 1024


class Monitor:
    """The thread that hears the host in mid-cell, empties the output's pipe and shows output.

    A cell that is soon over costs it nothing: it looks every few milliseconds, and listens to the
    host if the agent's code has been at work since the last look (`Session.turn` tells). After some
    looks at nothing it sleeps until the main thread wakes it for the next turn.
    """

    def __init__(self, session):
        self.session = session
        self.sleeping = False
        self.shown = None
        self.next_show = 0.0
        self.next_flush = 0.0
        low = os.pipe()
        self.wake_read, self.wake_write = map(move_high, low)
        for fd in low:
            os.close(fd)

    def start(self):
        self.poll = select.poll()
        self.poll.register(self.wake_read, select.POLLIN)
        self.poll.register(self.session.output.pipe, select.POLLIN)
        _thread.start_new_thread(self.run, ())

    def wake(self):
        self.sleeping = False
        os.write(self.wake_write, b".")

    def run(self):
        try:
            self.watch()
        except BaseException as e:
            self.session.channel.fatal(describe_failure(e))

    def watch(self):
        session = self.session
        turn = 0
        quiet_ticks = 0
        while True:
            if turn != session.turn:
                turn = session.turn
                quiet_ticks = 0
                self.wait(TICK_MS)
            elif session.agent_runs:
                self.listen()
            elif quiet_ticks < QUIET_TICKS:
                quiet_ticks += 1
                self.wait(TICK_MS)
            else:
                self.sleep()
            if session.in_cell:
                self.look_after_cell()

    def look_after_cell(self):
        session = self.session
        if session.interrupt is not None:
            _signal.pthread_kill(session.main_thread, SIGNAL)
        now = monotonic()
        if now >= self.next_show and self.show():
            self.next_show = now + OUTPUT_MS / 1000

    def listen(self):
        """Agent's code is at work, so this thread is the one that hears the host."""
        session = self.session
        stream = session.channel.rfd
        self.poll.register(stream, select.POLLIN)
        try:
            for fd, event in self.poll.poll(INTERRUPT_MS if session.interrupt else OUTPUT_MS):
                if fd == stream:
                    self.read_stream()
                else:
                    self.handle(fd, event)
        finally:
            self.poll.unregister(stream)

    def sleep(self):
        """Until the main thread begins a turn. It sets `agent_runs` and then looks at `sleeping`;
        here it is the other way round, so no turn is slept through."""
        self.sleeping = True
        if not self.session.agent_runs:
            self.wait(OUTPUT_MS if self.session.in_cell else None)
        self.sleeping = False

    def wait(self, timeout_ms):
        for fd, event in self.poll.poll(timeout_ms):
            self.handle(fd, event)

    def handle(self, fd, event):
        if fd == self.wake_read:
            os.read(fd, 4096)
        elif event & select.POLLIN:
            self.session.output.drain()
        else:
            self.poll.unregister(fd)

    def read_stream(self):
        session = self.session
        if not session.reading.acquire(False):
            return
        session.reader = _thread.get_ident()
        try:
            session.pump(False)
        finally:
            session.reader = None
            session.reading.release()

    def show(self):
        """Sends the output so far, if there is more than before; tells if so."""
        session = self.session
        with session.lock:
            mark = session.cell, session.output.mark()
            if self.shown == mark or not session.in_cell:
                return False
            self.shown = mark
            text, omitted = session.output.text(OUTPUT_FRAME_CHARS)
            if text:
                payload = '{"cell":%d,"output":%s,"omitted":%d}' % (
                    session.cell, quote(text), omitted)
                session.channel.send_frame(OUTPUT, payload.encode())
        return True

    def show_flushed(self):
        """The code has flushed its output: the process may die next."""
        began = monotonic()
        if began >= self.next_flush:
            self.show_now()
            now = monotonic()
            self.next_flush = now + (now - began) / FLUSH_SHARE

    def show_now(self):
        session = self.session
        if session.in_cell and session.channel.can_send():
            session.output.drain()
            self.show()
