"""Reading, writing and moving descriptors."""
import fcntl
import os


def move_high(fd):
    """A close-on-exec copy out of the way of what the agent's code opens."""
    for lowest in (700, 200, 60, 10):
        try:
            return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, lowest)
        except OSError:
            continue
    return os.dup(fd)


def write_all(fd, data):
    data = memoryview(data)
    while data:
        data = data[os.write(fd, data):]


def read_whole(fd, size):
    data = bytearray()
    while len(data) < size:
        chunk = os.pread(fd, min(size - len(data), 1 << 24), len(data))
        if not chunk:
            raise ValueError("a blob's file is shorter than the blob")
        data += chunk
    return bytes(data)
