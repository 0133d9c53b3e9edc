"""JSON, read and written with the C parts of the json module, which itself would import `re`."""
from _json import encode_basestring_ascii as quote, make_scanner


class Json:
    """Reads JSON with the C scanner of the json module, which looks up these names."""

    strict = True
    object_pairs_hook = None
    parse_float = parse_constant = float
    parse_int = int

    def __init__(self, object_hook=None):
        self.object_hook = object_hook
        self.scan = make_scanner(self)

    def read(self, payload):
        return self.scan(payload.decode("utf-8", "surrogatepass"), 0)[0]


read_json = Json().read


def quote_all(texts):
    return "[%s]" % ",".join(map(quote, texts))


def quote_members(members):
    return "{%s}" % ",".join("%s:%s" % (quote(k), quote(v)) for k, v in members.items())
