"""The encoding of values, both ways, and what is said of those that cannot be sent."""
import binascii
import os
from _collections_abc import Iterator, MappingView, coroutine as Coroutine
from _json import encode_basestring_ascii as quote

from .errors import Failure
from .descriptors import read_whole
from .frames import BYTES, MAX_CHUNK, TEXT
from .mapped_text import MappedText, decode_file
from .inputs import DirectoryInput

MAX_VALUE = 1 << 30
STREAM_FROM = 64 * 1024
MAX_DEPTH = 100  # of a value


class Values:
    """The encoding of values, both ways, and the blobs that this session was given."""

    def __init__(self, session):
        self.session = session
        self.channel = session.channel
        self.channel.on_blob = self.take_blob
        self.by_hash = {}
        self.shared = None  # of sessions in one process: the blobs that one of them has read, by hash
        self.hashes = {}
        self.mapper = None
        self.why = None
        self.decoders = {
            "$blob": self.by_hash.__getitem__,
            "$failure": lambda v: Failure(
                v.get("reason", ""), v.get("message", ""), v.get("agent_id", "")),
            "$dir": lambda v: DirectoryInput(session, v["name"], v["files"]),
            "$bytes": binascii.a2b_base64,
            "$dict": dict,
            "$float": float,
            "$frozenset": frozenset,
            "$set": set,
            "$tuple": tuple,
        }

    def can_map(self):
        if self.mapper is None and self.why is None:
            try:
                mapper = MappedText()
                mapper.check_itself()
                self.mapper = mapper
            except Exception as e:
                self.why = str(e) or type(e).__name__
        return self.mapper is not None

    # Blobs.

    def take_blob(self, about, data, fd):
        value = self.shared.get(about["id"]) if self.shared is not None and fd >= 0 else None
        if value is not None:
            os.close(fd)
        elif fd >= 0:
            value = self.blob_from_descriptor(about, fd)
            if self.shared is not None:
                self.shared[about["id"]] = value
        else:
            value = data.decode("utf-8", "surrogatepass") if about["type"] == "text" else data
        self.by_hash[about["id"]] = value
        self.hashes[id(value)] = about["id"]

    def blob_from_descriptor(self, about, fd):
        try:
            if about["type"] != "text":
                return read_whole(fd, about["bytes"])
            chars, width = about["chars"], about["width"]
            size = chars * width
            if chars and os.fstat(fd).st_size == size and self.can_map():
                return self.mapper.new(fd, chars, width, bool(about["ascii"]))
            return decode_file(fd, size, width)
        finally:
            os.close(fd)

    # To the agent.

    def decode_object(self, obj):
        """`object_hook` of the JSON reader."""
        if len(obj) == 1:
            (key, value), = obj.items()
            decode = self.decoders.get(key)
            if decode is not None:
                return decode(value)
        return obj

    def decode(self, value):
        """The same for what has been read without it."""
        if isinstance(value, list):
            return [self.decode(item) for item in value]
        if isinstance(value, dict):
            return self.decode_object({key: self.decode(item) for key, item in value.items()})
        return value

    # From the agent.

    def encode(self, value, path, depth=0, above=()):
        """The value as JSON; `path` names it in errors. Sends big texts and bytes ahead."""
        kind = type(value)
        if kind is str:
            return quote(value) if len(value) < 256 else self.encode_large(value, kind)
        if value is None:
            return "null"
        if kind is bool:
            return "true" if value else "false"
        if kind is int:
            return repr(value)
        if kind is float:
            return repr(value) if value - value == 0 else '{"$float":"%r"}' % value
        if kind in (list, dict, tuple, set, frozenset):
            if id(value) in above:
                raise ValueError("%s contains itself" % path)
            if depth >= MAX_DEPTH:
                raise ValueError("%s is nested more than %d deep" % (path, MAX_DEPTH))
            return self.encode_container(value, kind, path, depth + 1, above + (id(value),))
        if kind is bytes:
            return self.encode_large(value, kind)
        if kind is DirectoryInput:
            return '{"$dir":{"name":%s}}' % quote(value.name)
        return self.encode_other(value, path, depth, above)

    def encode_container(self, value, kind, path, depth, above):
        encode = self.encode
        if kind is dict:
            if all(type(k) is str and not k.startswith("$") for k in value):
                return "{%s}" % ",".join(
                    ["%s:%s" % (quote(k), encode(v, Path(path, k), depth, above))
                     for k, v in value.items()])
            return '{"$dict":[%s]}' % ",".join(
                ["[%s,%s]" % (encode(k, Path(path, k), depth, above),
                              encode(v, Path(path, k), depth, above)) for k, v in value.items()])
        items = ",".join([encode(v, Path(path, i), depth, above) for i, v in enumerate(value)])
        return "[%s]" % items if kind is list else '{"$%s":[%s]}' % (kind.__name__, items)

    def encode_large(self, value, kind):
        """A text or bytes, by name if it is a blob, else by value or on a stream."""
        known = self.hashes.get(id(value))
        if known is not None:
            return '{"$blob":%s}' % quote(known)
        size = len(value)
        if size > MAX_VALUE:
            raise ValueError("a value of %s bytes is too large to send; the limit is 1 GiB"
                             % format(size, ","))
        if kind is bytes:
            if size < STREAM_FROM:
                return '{"$bytes":"%s"}' % binascii.b2a_base64(value, newline=False).decode()
            return '{"$stream":%d}' % self.channel.send_stream(BYTES, (
                value[i:i + MAX_CHUNK] for i in range(0, size, MAX_CHUNK)))
        if size < STREAM_FROM and len(encode_utf8(value)) < STREAM_FROM:
            return quote(value)
        step = MAX_CHUNK // 4
        return '{"$stream":%d}' % self.channel.send_stream(TEXT, (
            encode_utf8(value[i:i + step]) for i in range(0, size, step)))

    def encode_other(self, value, path, depth, above):
        """Subclasses of plain types go as these; for everything else the error says what to do."""
        for base, plain in ((str, str.__str__), (int, int.__int__), (float, float.__float__),
                            (dict, dict), (list, list), (tuple, tuple),
                            ((bytes, bytearray, memoryview), bytes)):
            if isinstance(value, base):
                return self.encode(plain(value), path, depth, above + (id(value),))
        raise TypeError("%s is %s, which cannot be sent to the host%s" % (
            path, describe_kind(value), advice_for(value)))


def encode_utf8(text):
    return text.encode("utf-8", "surrogatepass")


class Path:
    """`specs[2]["inputs"]`, put together only when an error needs it."""

    __slots__ = ("above", "key")

    def __init__(self, above, key):
        self.above = above
        self.key = key

    def __str__(self):
        key = repr(self.key) if not isinstance(self.key, str) else quote(self.key)
        return "%s[%s]" % (self.above, key[:80])


def describe_kind(value):
    kind = type(value)
    if isinstance(value, Coroutine):
        return "a coroutine (`await` is missing)"
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = "%s.%s" % (kind.__module__, name)
    if isinstance(value, type):
        return "the class %s" % value.__qualname__
    return "%s %s" % ("an" if name[0] in "aeiouAEIOU" else "a", name)


def advice_for(value):
    kind = type(value)
    name = kind.__name__
    package = kind.__module__.split(".")[0]
    if isinstance(value, type) and hasattr(value, "model_json_schema"):
        return "; use %s.model_json_schema()" % value.__name__
    for fits, what in (
            (package == "numpy", ".tolist()" if name == "ndarray" else ".item()"),
            (package == "pandas", ".to_dict()" if name in ("DataFrame", "Series") else "str()"),
            (hasattr(kind, "__dataclass_fields__"), "dataclasses.asdict()"),
            (hasattr(kind, "model_dump"), ".model_dump()"),
            (hasattr(kind, "isoformat"), ".isoformat()"),
            (hasattr(kind, "total_seconds"), ".total_seconds()"),
            (isinstance(value, os.PathLike) or name in ("Decimal", "Fraction", "UUID"), "str()"),
            (isinstance(value, (range, Iterator, MappingView)), "list()")):
        if fits:
            return "; use " + what
    if name in ("function", "builtin_function_or_method", "method"):
        return ""
    return "; send None, bool, int, float, str, bytes, or lists, tuples, sets and dicts of these"
