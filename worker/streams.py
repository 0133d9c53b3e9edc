"""`sys.stdin`, `sys.stdout` and `sys.stderr`."""
import io
from time import monotonic

from .agent_code import calls_agent
from .descriptors import write_all
from .output import MAX_PIECES, lenient_decoder

PIPE_LOOK_SECONDS = 0.0005  # a print() looks so often whether descriptors 1 and 2 were written to

# A look lets go of the interpreter's lock for a microsecond, too short for a thread that waits for it to wake
# and take it. Python asks the holder for the lock in the thread's name, but only when nobody has let go of it
# for this long. Were that as long as what lies between two looks, a loop that prints would keep all other
# threads from their turn, for as long as it runs.
SWITCH_SECONDS = PIPE_LOOK_SECONDS / 2


class OutputBytes(io.BufferedIOBase):
    """`sys.stdout.buffer`."""

    def __init__(self, stream):
        self.stream = stream
        self.decoder = lenient_decoder()

    def write(self, data):
        data = bytes(memoryview(data))
        self.stream.write(self.decoder.decode(data))
        return len(data)

    def writable(self):
        return True

    def fileno(self):
        return self.stream.number

    def close(self):
        pass


class OutputStream(io.TextIOBase):
    """`sys.stdout` and `sys.stderr`."""

    encoding = "utf-8"
    errors = "surrogateescape"
    mode = "w"

    def __init__(self, session, number, name):
        self.session = session
        self.output = session.output
        self.number = number
        self.name = name
        self.buffer = OutputBytes(self)

    @calls_agent
    def write(self, text):
        if type(text) is not str:
            if not isinstance(text, str):
                raise TypeError("write() argument must be str, not %s" % type(text).__name__)
            text = str.__str__(text)
        output = self.output
        now = monotonic()
        if now > output.next_look:
            output.next_look = now + PIPE_LOOK_SECONDS
            output.drain()
            output.next_look = monotonic() + PIPE_LOOK_SECONDS  # as others had their turn meanwhile
            # Where a loop does little but print, the signal of an interrupt may strike in drain() alone.
            self.session.check_interrupt()
        chars = len(text)
        with output.lock:
            if chars <= output.room and len(output.head) < MAX_PIECES:
                output.head.append(text)
                output.room -= chars
            else:
                output.add(text)
        return chars

    def write_plainly(self, text):
        """In a forked child."""
        write_all(self.number, text.encode("utf-8", "backslashreplace"))
        return len(text)

    def flush(self):
        """What was flushed is not lost when the process dies."""
        self.session.display.show_flushed()

    def writable(self):
        return True

    def fileno(self):
        return self.number

    def close(self):
        pass

    def reconfigure(self, **options):
        pass


class NoInput(io.TextIOWrapper):
    """`sys.stdin`: always at its end, and never closed (`exit()` would)."""

    def close(self):
        pass
