"""The journal of a run as its file is: records, their bytes, and what they say (src/graph/journal.h)."""

import json
import shutil
import struct

HEADER = 8
KINDS = {1: "run", 2: "resumed", 3: "node", 4: "child", 5: "input_list", 6: "session_opened",
         7: "cell_started", 8: "call_started", 9: "call_finished", 10: "call_delivered",
         11: "reserve", 12: "settle", 13: "gate", 14: "session_ended", 15: "run_ended", 16: "edit",
         17: "blob"}


def records(path):
    """[(kind, what it says, offset of its end)] of a run's whole records."""
    data, found, at = (path / "journal").read_bytes(), [], HEADER
    while at + 9 <= len(data):
        length, _, kind = struct.unpack_from("<IIB", data, at)
        end = at + 9 + length
        if end > len(data):
            break
        found.append((KINDS[kind], json.loads(data[at + 9:end].decode("utf-8", "surrogatepass")), end))
        at = end
    return found


def cut(path, copy, end):
    """Copies a run, its journal only up to that byte: what a kill at that moment leaves."""
    shutil.copytree(path, copy)
    with open(copy / "journal", "r+b") as file:
        file.truncate(end)
    return copy
