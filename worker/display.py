"""Showing the host what a cell has printed so far."""
from _json import encode_basestring_ascii as quote
from time import monotonic

from .frames import OUTPUT

OUTPUT_MS = 200  # between two `output` frames
FLUSH_SHARE = 0.1  # of the time goes into `output` frames where the code flushes all the time
OUTPUT_FRAME_CHARS = 48 * 1024


class Display:
    """Sends `output` frames, so that what was printed is known when the worker dies."""

    def __init__(self, session):
        self.session = session
        self.shown = None
        self.next_show = 0.0
        self.next_flush = 0.0

    def show_at_times(self):
        now = monotonic()
        if now >= self.next_show and self.show():
            self.next_show = now + OUTPUT_MS / 1000

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
