"""Big texts that stand in a mapped file and take no memory of their own."""
import os
import sys
from _struct import calcsize

from .descriptors import write_all


class MappedText:
    """Makes objects of exactly type `str` whose characters are a mapped file.

    An instance of a subclass of `str` holds its characters outside of the object, so its data
    pointer can be changed. It is made from one character of the same kind, which sets all bits of
    its state; then data and length are exchanged, the collector forgets it, and its type becomes
    `str`. It is never freed. All offsets are checked against what must stand there before anything
    is written.
    """

    SAMPLES = {(1, True): "a", (1, False): "\xe9", (2, False): "\u0101", (4, False): "\U00010001"}

    def __init__(self):
        import ctypes
        import gc

        self.ctypes = ctypes
        self.gc = gc
        old = sys.version_info < (3, 12)
        self.utf8_length = 48 if old else 40
        self.utf8 = self.utf8_length + 8
        self.wstr = 40 if old else None
        self.wstr_length = self.utf8 + 8 if old else None
        self.data = self.utf8 + (16 if old else 8)
        libc = ctypes.CDLL(None, use_errno=True)
        self.mmap = libc.mmap
        self.mmap.restype = ctypes.c_void_p
        self.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                              ctypes.c_int, ctypes.c_long]
        self.untrack = ctypes.pythonapi.PyObject_GC_UnTrack
        self.untrack.argtypes = [ctypes.py_object]
        self.untrack.restype = None

    def word(self, obj, offset):
        return self.ctypes.c_ssize_t.from_address(id(obj) + offset)

    def new(self, fd, chars, width, is_ascii):
        """The text in a file of `chars` units of `width` bytes; raises if the layout is unknown."""
        sample = self.SAMPLES[width, is_ascii]
        kept_class = type("Text", (str,), {"__slots__": ()})
        text = kept_class(sample)
        if sys.implementation.name != "cpython" or calcsize("P") != 8:
            raise RuntimeError("the interpreter is no 64-bit CPython")
        if (self.word(text, 8).value != id(kept_class) or self.word(text, 16).value != 1
                or kept_class.__basicsize__ != self.data + 8):
            raise RuntimeError("the interpreter lays out texts in an unknown way")
        at = self.word(text, self.data).value
        expected = ord(sample).to_bytes(width, sys.byteorder)
        if not at or self.ctypes.string_at(at, width) != expected:
            raise RuntimeError("the interpreter lays out texts in an unknown way")
        if is_ascii and self.word(text, self.utf8).value != at:
            raise RuntimeError("the interpreter lays out ASCII texts in an unknown way")
        base = self.map(fd, chars * width)
        self.word(text, self.data).value = base
        self.word(text, 16).value = chars
        self.word(text, 24).value = -1
        self.word(text, self.utf8).value = base if is_ascii else 0
        self.word(text, self.utf8_length).value = chars if is_ascii else 0
        if self.wstr is not None and width == 4:
            self.word(text, self.wstr).value = base
            self.word(text, self.wstr_length).value = chars
        if self.gc.is_tracked(text):
            self.untrack(text)
        self.ctypes.pythonapi.Py_IncRef(self.ctypes.py_object(text))
        self.word(text, 8).value = id(str)
        return text

    def map(self, fd, size):
        """Maps the file with at least four zero bytes behind it."""
        page = os.sysconf("SC_PAGE_SIZE")
        whole = (size // page + 1) * page
        base = self.mmap(None, whole, 1, 0x22, -1, 0)
        if base in (None, self.ctypes.c_void_p(-1).value):
            raise MemoryError("no room to map %d bytes" % size)
        if size and self.mmap(base, size, 1, 0x02 | 0x10, fd, 0) != base:
            raise OSError(self.ctypes.get_errno(), "cannot map a text")
        return base

    def check_itself(self):
        """Raises unless texts made this way behave."""
        for (width, is_ascii), sample in self.SAMPLES.items():
            plain = sample * 5000 + "xyz" + sample
            data = encode_units(plain, width)
            fd = os.memfd_create("rlmflow")
            try:
                write_all(fd, data)
                text = self.new(fd, len(plain), width, is_ascii)
            finally:
                os.close(fd)
            if not (type(text) is str and text == plain and hash(text) == hash(plain)
                    and text[4999:5004] == plain[4999:5004] and text.find("xyz") == 5000
                    and text.isascii() == is_ascii and {text: 1}[plain] == 1
                    and text.encode() == plain.encode() and len(text + "!") == len(plain) + 1):
                raise RuntimeError("a mapped text of width %d misbehaves" % width)


def unit_codec(width):
    return "latin-1" if width == 1 else "utf-%d-%s" % (width * 8, sys.byteorder[0] + "e")


def encode_units(text, width):
    """The text as units of 1, 2 or 4 bytes in this machine's order."""
    return text.encode(unit_codec(width), "strict" if width == 1 else "surrogatepass")


def decode_file(fd, size, width):
    """The text that a whole file holds, as an object of its own and without another copy."""
    if not size:
        return ""
    from mmap import PROT_READ, mmap
    with mmap(fd, size, prot=PROT_READ) as units:
        return str(units, unit_codec(width), "strict" if width == 1 else "surrogatepass")
