"""The thread that looks after cells while their main threads are at work in them."""
import _thread
import os
import select

from .descriptors import move_high
from .display import OUTPUT_MS
from .errors import SessionOver
from .reports import describe_failure

INTERRUPT_MS = 10  # between two tries to raise an interrupt
TICK_MS = 3  # of the monitor; two of them must be less than the 10 ms in which `yield` is answered
QUIET_TICKS = 30


class Monitor:
    """The thread that hears the host in mid-cell, empties the output's pipe and shows output.

    A cell that is soon over costs it nothing: it looks every few milliseconds, and listens to the
    host if the agent's code has been at work since the last look (`Session.turn` tells). After some
    looks at nothing it sleeps until a main thread wakes it for the next turn.
    """

    def __init__(self):
        self.sessions = ()  # made anew when it changes
        self.lock = _thread.allocate_lock()  # of that, and of what is polled
        self.by_stream = {}
        self.by_pipe = {}
        self.sleeping = False
        low = os.pipe()
        self.wake_read, self.wake_write = map(move_high, low)
        for fd in low:
            os.close(fd)
        self.poll = select.poll()
        self.poll.register(self.wake_read, select.POLLIN)

    def start(self):
        _thread.start_new_thread(self.run, ())

    def add(self, session):
        with self.lock:
            self.by_stream[session.channel.rfd] = session
            if session.output.pipe >= 0:
                self.by_pipe[session.output.pipe] = session
                self.poll.register(session.output.pipe, select.POLLIN)
            self.sessions += (session,)

    def remove(self, session):
        """Before its stream is closed. It has no pipe."""
        with self.lock:
            self.sessions = tuple(s for s in self.sessions if s is not session)
            if self.by_stream.pop(session.channel.rfd, None) and session.heard:
                self.poll.unregister(session.channel.rfd)

    def wake(self):
        self.sleeping = False
        os.write(self.wake_write, b".")

    def run(self):
        try:
            self.watch()
        except BaseException as e:
            for session in self.sessions:
                session.channel.fatal(describe_failure(e))

    def watch(self):
        quiet_ticks = 0
        while True:
            quiet_ticks += 1
            for session in self.sessions:
                if session.seen_turn != session.turn:
                    session.seen_turn = session.turn
                    quiet_ticks = 0
                    self.hear(session, False)
                else:
                    self.hear(session, session.agent_runs)
            if quiet_ticks == 0 or quiet_ticks < QUIET_TICKS and not self.hears_all():
                self.wait(TICK_MS)
            else:
                self.sleep()
            for session in self.sessions:
                if session.in_cell:
                    self.look_after(session)

    def look_after(self, session):
        try:
            if session.interrupt is not None or session.over:
                session.place.interrupt(session)
            session.display.show_at_times()
        except SessionOver:
            session.over = True

    def hear(self, session, wanted):
        """Agent's code is at work, so this thread is the one that hears the host."""
        wanted = wanted and not session.over
        if wanted != session.heard:
            with self.lock:
                if self.by_stream.get(session.channel.rfd) is session:
                    session.heard = wanted
                    if wanted:
                        self.poll.register(session.channel.rfd, select.POLLIN)
                    else:
                        self.poll.unregister(session.channel.rfd)

    def hears_all(self):
        return all(session.heard for session in self.sessions)

    def sleep(self):
        """Until something is heard, or a session that is not heard begins a turn. That one sets
        `agent_runs` and then looks at `sleeping`; here it is the other way round, so no turn is
        slept through."""
        self.sleeping = True
        timeout_ms = None
        for session in self.sessions:
            if session.agent_runs and not session.heard and not session.over:
                timeout_ms = 0
                break
            if (session.in_cell or session.heard) and timeout_ms != INTERRUPT_MS:
                timeout_ms = INTERRUPT_MS if session.interrupt is not None else OUTPUT_MS
        self.wait(timeout_ms)
        self.sleeping = False

    def wait(self, timeout_ms):
        for fd, event in self.poll.poll(timeout_ms):
            if fd == self.wake_read:
                os.read(fd, 4096)
            elif fd in self.by_pipe:
                self.handle_pipe(self.by_pipe[fd], event)
            else:
                session = self.by_stream.get(fd)
                if session is not None:
                    self.read_stream(session)

    def handle_pipe(self, session, event):
        if event & select.POLLIN:
            session.output.drain()
        else:
            self.poll.unregister(session.output.pipe)

    def read_stream(self, session):
        if not session.reading.acquire(False):
            return
        session.reader = _thread.get_ident()
        try:
            session.pump(False)
        except SessionOver:
            session.over = True
        finally:
            session.reader = None
            session.reading.release()
