"""The server's own tokenizer: one token for every 4 bytes of UTF-8, the last one may be shorter.

Token k of a text holds the characters whose *last* byte lies in bytes [4k, 4k + 4). So no character
is ever split, no token is empty, and the number of tokens is exactly ceil(bytes / 4).

A message costs MESSAGE_TOKENS on top of its text, a request REQUEST_TOKENS; tool definitions and
tool calls count as their JSON text.
"""

MESSAGE_TOKENS = 4
REQUEST_TOKENS = 3


def count(text):
    """Tokens of a text."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return (size + 3) // 4


def first(text, tokens):
    """The longest prefix of at most `tokens` tokens."""
    if tokens <= 0:
        return ""
    if text.isascii():
        return text[: 4 * tokens]
    return text.encode("utf-8", "surrogatepass")[: 4 * tokens].decode("utf-8", "ignore")


def pieces(text, tokens_each=1):
    """The text in pieces of `tokens_each` tokens (the last may be shorter)."""
    step = 4 * tokens_each
    if text.isascii():
        return [text[i : i + step] for i in range(0, len(text), step)]
    data = text.encode("utf-8")
    result = []
    begin = 0
    for end in range(step, len(data) + step, step):
        end = min(end, len(data))
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end -= 1
        result.append(data[begin:end].decode("utf-8"))
        begin = end
    return result
