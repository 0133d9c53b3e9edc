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
INTERRUPT_MS = 10  # between two signals of an interrupt that has not been raised yet
TICK_MS = 3  # of the monitor; two of them must be less than the 10 ms in which `yield` is answered
QUIET_TICKS = 30
OUTPUT_FRAME_CHARS = 48 * 1024


class Monitor:
    """The thread that hears the host in mid-cell, empties the output's pipe and shows output.

    A cell that is soon over costs it nothing: it looks every few milliseconds, and listens to the host
    if the agent's code has been at work since the last look (`Session.turn` tells). After some looks at
    nothing it sleeps until the main thread wakes it for the next turn.
    """

    def __init__(self, session):
        self.session = session
        self.sleeping = False
        self.shown = None
        self.next_show = 0.0
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
                self.doze(TICK_MS)
            elif session.agent_runs:
                self.listen()
            else:
                quiet_ticks += 1
                self.doze(TICK_MS if quiet_ticks < QUIET_TICKS else None)
            if session.in_cell:
                self.look_after_cell()

    def look_after_cell(self):
        session = self.session
        if session.interrupt is not None:
            _signal.pthread_kill(session.main_thread, SIGNAL)
        now = monotonic()
        if now >= self.next_show and self.shown != session.output.mark():
            self.next_show = now + OUTPUT_MS / 1000
            self.show()

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

    def doze(self, timeout):
        if timeout is None:
            self.sleeping = True
            if self.session.in_cell:
                timeout = OUTPUT_MS
        if timeout == TICK_MS or not self.session.agent_runs:
            for fd, event in self.poll.poll(timeout):
                self.handle(fd, event)
        self.sleeping = False

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
        session = self.session
        self.shown = session.output.mark()
        text, omitted = session.output.text(OUTPUT_FRAME_CHARS)
        payload = '"output":%s,"omitted":%d}' % (quote(text), omitted)
        with session.lock:
            if text and session.in_cell:
                payload = '{"cell":%d,%s' % (session.cell, payload)
                session.channel.send_frame(OUTPUT, payload.encode())
