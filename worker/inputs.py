"""`INPUTS`, and directories given as an input."""
from _collections_abc import Mapping

from .agent_code import calls_agent


class Inputs(dict):
    """`INPUTS`: the inputs of this agent by name; cannot be changed."""

    def refuse(self, *args, **kwargs):
        raise TypeError("INPUTS cannot be changed; keep your own values under other names")

    __setitem__ = __delitem__ = __ior__ = update = setdefault = pop = popitem = clear = refuse

    def __missing__(self, name):
        raise KeyError("there is no input %r; the inputs are: %s"
                       % (name, ", ".join(self) or "none"))

    def __reduce__(self):
        return (dict, (dict(self),))

    def copy(self):
        return dict(self)


class DirectoryInput(Mapping):
    """A directory given as an input: file names to contents, each read when first asked for."""

    def __init__(self, session, name, files):
        self.session = session
        self.name = name
        self.sizes = {file: size for file, size in files}
        self.kept = {}

    @calls_agent
    def __getitem__(self, file):
        if file not in self.kept:
            if file not in self.sizes:
                raise KeyError(file)
            self.kept[file] = self.session.call("read_input", (("name", self.name), ("file", file)))
        return self.kept[file]

    @calls_agent
    def __contains__(self, file):
        return file in self.sizes

    def __iter__(self):
        return iter(self.sizes)

    def __len__(self):
        return len(self.sizes)

    def __repr__(self):
        return "<directory input %r: %d files, %s bytes>" % (
            self.name, len(self), format(sum(self.sizes.values()), ","))


def describe_value(value):
    if isinstance(value, (str, bytes)):
        return "%s, %s %s" % (type(value).__name__, format(len(value), ","),
                              "characters" if isinstance(value, str) else "bytes")
    return type(value).__name__
