"""Reads the journal of a run, independently of the program: the format that src/graph/journal.h and
src/flow/record.c describe."""

import json
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path

MAGIC = b"rlmflow\x01"
KINDS = ("run", "resumed", "node", "child", "input_list", "session_opened", "cell_started",
         "call_started", "call_finished", "call_delivered", "reserve", "settle", "gate",
         "session_ended", "run_ended", "edit", "blob")
_HEADER = struct.Struct("<IIB")


def _crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc_table()


def crc32c(data):
    """The Castagnoli CRC that a record carries."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


@dataclass
class Record:
    """One record: its place among the others, its kind by name, its members, where it ends in the
    file."""

    position: int
    kind: str
    members: dict
    end: int

    def __getitem__(self, name):
        return self.members[name]

    def get(self, name, default=None):
        """A member that need not be there."""
        return self.members.get(name, default)


def _record_at(data, offset, position):
    """The record that begins there; an AssertionError when a byte of it is not as it should be."""
    assert len(data) - offset >= _HEADER.size, f"the record at {offset} is cut off"
    length, crc, kind = _HEADER.unpack_from(data, offset)
    payload = data[offset + _HEADER.size:offset + _HEADER.size + length]
    assert len(payload) == length, f"the record at {offset} is cut off"
    covered = struct.pack("<IB", length, kind) + payload + struct.pack("<Q", offset)
    assert crc32c(covered) == crc, f"the record at {offset} has another checksum"
    assert 1 <= kind <= len(KINDS), f"the record at {offset} is of kind {kind}"
    members = json.loads(payload.decode("utf-8", "surrogatepass"))
    return Record(position, KINDS[kind - 1], members, offset + _HEADER.size + length)


class Journal:
    """All records of a run in order. An AssertionError when a byte of the file is not as it should
    be, or, where it may be `torn`, only those before that byte. `end` is where the last ends."""

    def __init__(self, run, torn=False):
        self.blobs = Path(run) / "blobs"
        self.records = []
        data = (Path(run) / "journal").read_bytes()
        assert data.startswith(MAGIC), data[:8]
        self.end = len(MAGIC)
        while self.end < len(data):
            try:
                record = _record_at(data, self.end, len(self.records))
            except AssertionError:
                if torn:
                    break
                raise
            self.records.append(record)
            self.end = record.end

    def all(self, kind, **members):
        """The records of a kind whose members have these values."""
        return [r for r in self.records if r.kind == kind
                and all(r.get(name) == value for name, value in members.items())]

    def one(self, kind, **members):
        """The only one."""
        found = self.all(kind, **members)
        assert len(found) == 1, f"{len(found)} records {kind} {members}: {found}"
        return found[0]

    def text(self, value):
        """A text member, from its blob where it has one."""
        if isinstance(value, dict):
            return (self.blobs / value["$blob"]).read_bytes().decode("utf-8", "surrogatepass")
        return value


def blob_ids(value):
    """The ids of all blobs that a value names."""
    if isinstance(value, dict):
        if "$blob" in value:
            return {value["$blob"]}
        value = list(value.values())
    return set().union(*map(blob_ids, value)) if isinstance(value, list) else set()


def cut(run, copy, end):
    """Copies a run, its journal only up to that byte: what a kill at that moment leaves."""
    shutil.copytree(run, copy)
    with open(copy / "journal", "r+b") as file:
        file.truncate(end)
    return copy


def rewrite(run, copy, edit):
    """Copies a run with its records changed: `edit` gets each (a Record) and returns the members that it
    is to have, or None to leave it out. Lengths and checksums are right."""
    shutil.copytree(run, copy)
    data = bytearray(MAGIC)
    for record in Journal(run).records:
        members = edit(record)
        if members is None:
            continue
        payload = json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode(
            "utf-8", "surrogatepass")
        kind = KINDS.index(record.kind) + 1
        crc = crc32c(struct.pack("<IB", len(payload), kind) + payload + struct.pack("<Q", len(data)))
        data += _HEADER.pack(len(payload), crc, kind) + payload
    (copy / "journal").write_bytes(data)
    return copy
