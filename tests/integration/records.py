"""Writes journals record by record, for runs that no program leaves behind in a moment."""

import json
import struct

from journal import KINDS, MAGIC, Journal, crc32c


def read(run):
    """[(kind, members)] of a run."""
    return [(record.kind, record.members) for record in Journal(run).records]


def write(run, records):
    """Makes the journal of a run anew from what read() gives."""
    data = bytearray(MAGIC)
    for kind, members in records:
        payload = json.dumps(members).encode()
        head = struct.pack("<IB", len(payload), KINDS.index(kind) + 1)
        crc = crc32c(head + payload + struct.pack("<Q", len(data)))
        data += struct.pack("<II", len(payload), crc) + head[4:] + payload
    (run / "journal").write_bytes(data)
