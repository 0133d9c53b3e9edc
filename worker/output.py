"""What cells print: kept to a limit, and taken from the pipe that stands on descriptors 1 and 2."""
import _thread
import codecs
import os
import select

from .descriptors import move_high

MAX_PIECES = 4096  # of output, before they are joined


def gap(around, chars, what):
    return "%s... [%s %s] ...%s" % (around, format(chars, ","), what, around)


def cut_middle(text, limit, around="\n"):
    half = limit // 2
    if len(text) <= limit:
        return text
    return text[:half] + gap(around, len(text) - 2 * half, "characters left out") + text[-half:]


def identity(fd):
    """Tells what is behind a descriptor; None if it is closed."""
    try:
        about = os.fstat(fd)
    except OSError:
        return None
    return about.st_dev, about.st_ino


def lenient_decoder():
    return codecs.getincrementaldecoder("utf-8")("backslashreplace")


class Output:
    """What cells print: the first half of the limit, then a tail. Any thread may add."""

    def __init__(self):
        self.lock = _thread.RLock()
        self.pipe = self.spare_end = -1
        self.next_look = 0.0
        self.decoder = lenient_decoder()
        self.set_limit(1 << 20)

    def set_limit(self, chars):
        self.half = max(chars // 2, 1)
        self.clear()

    def clear(self):
        self.head = []
        self.room = self.half
        self.tail = []
        self.tail_chars = 0
        self.omitted = 0

    def add(self, text):
        chars = len(text)
        with self.lock:
            room = self.room
            if chars <= room:
                self.room = room - chars
                self.head.append(text)
                if len(self.head) > MAX_PIECES:
                    self.head = ["".join(self.head)]
                return
            if room:
                self.head.append(text[:room])
                self.room = 0
            start = max(room, chars - self.half)
            self.omitted += start - room
            self.tail.append(text[start:])
            self.tail_chars += chars - start
            if self.tail_chars > 2 * self.half or len(self.tail) > MAX_PIECES:
                self.cut_tail()

    def cut_tail(self):
        tail = "".join(self.tail)
        cut = max(len(tail) - self.half, 0)
        self.omitted += cut
        self.tail = [tail[cut:]]
        self.tail_chars = len(tail) - cut

    def text(self, limit=None):
        """The text and how many characters it lacks; `limit`: no more than about so many."""
        with self.lock:
            if self.tail:
                self.cut_tail()
            head, tail, omitted = "".join(self.head), "".join(self.tail), self.omitted
        if limit is not None and len(head) + len(tail) > limit:
            half = limit // 2
            if not omitted:
                head, tail = head[:half], head[half:] + tail
            omitted += max(len(head) - half, 0) + max(len(tail) - half, 0)
            head, tail = head[:half], tail[-half:]
        if omitted:
            head += gap("\n", omitted, "characters omitted")
        return head + tail, omitted

    def mark(self):
        """Differs when text was added."""
        return self.room, self.tail_chars, self.omitted

    def take(self):
        """The text of the cell that ends, and the number of characters it lacks."""
        with self.lock:
            if self.tail:
                result = self.text()
                self.clear()
                return result
            text = "".join(self.head)
            self.head.clear()
            self.room = self.half
            return text, 0

    def drain(self):
        """Takes what stands in the pipe of descriptors 1 and 2, if there is one; never waits."""
        if self.pipe < 0:
            return
        try:
            if not self.has_piped(0):
                return
        except RuntimeError:
            pass  # another thread asks at this moment; reading tells as well
        with self.lock:
            try:
                for _ in range(16):
                    data = os.read(self.pipe, 65536)
                    self.add(self.decoder.decode(data))
                    if len(data) < 65536:
                        break
            except OSError:
                pass

    def open_pipe(self):
        """Puts a pipe on descriptors 1 and 2, and nothing on 0."""
        read_end, write_end = os.pipe()
        self.pipe = move_high(read_end)
        os.close(read_end)
        os.set_blocking(self.pipe, False)
        poll = select.poll()
        poll.register(self.pipe, select.POLLIN)
        self.has_piped = poll.poll
        for number in (1, 2):
            os.dup2(write_end, number)
        self.spare_end = move_high(write_end)
        self.pipe_is = identity(write_end)
        os.close(write_end)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)

    def restore_descriptors(self):
        """Whether the cell has left descriptor 1 or 2 closed or elsewhere; it leads to the pipe again."""
        if self.pipe < 0:
            return False
        lost = [number for number in (1, 2) if identity(number) != self.pipe_is]
        if not lost or identity(self.spare_end) != self.pipe_is:
            return False
        for number in lost:
            os.dup2(self.spare_end, number)
        return True
