"""FILE_TOOLS. Bytes are bytes: UTF-8 with surrogateescape, and no translation of newlines."""
import os

from .agent_code import visible


def write_text(path, content, mode):
    is_text = isinstance(content, str)
    data = content.encode("utf-8", "surrogateescape") if is_text else bytes(content)
    parent = os.path.dirname(path)
    if parent:
        os.makedirs(parent, exist_ok=True)
    with open(path, mode) as file:
        file.write(data)
    return len(data)


def split_lines(text):
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def read_file(path):
    """The whole text of a file."""
    with open(path, "rb") as file:
        return file.read().decode("utf-8", "surrogateescape")


def write_file(path, content):
    """Writes a file anew, with the directories above it."""
    return "Wrote %d bytes to %s" % (write_text(path, content, "wb"), path)


def append_file(path, content):
    """Adds to the end of a file, which is made if it is missing, with the directories above it."""
    return "Appended %d bytes to %s" % (write_text(path, content, "ab"), path)


def edit_file(path, *edits, replace_all=False):
    """Applies (old, new) pairs in order; writes nothing unless every `old` is found, once (or any
    number of times with replace_all=True)."""
    text = read_file(path)
    for edit in edits:
        if isinstance(edit, str) or len(edit) != 2:
            raise TypeError("edit_file(path, *edits) takes (old, new) pairs")
        old, new = edit
        found = text.count(old) if old else 0
        if not found:
            raise ValueError("edit_file: anchor not found in %s: %r" % (path, old[:200]))
        if found > 1 and not replace_all:
            raise ValueError("edit_file: anchor appears %dx in %s: %r; make it longer or pass "
                             "replace_all=True" % (found, path, old[:200]))
        text = text.replace(old, new)
    write_text(path, text, "wb")
    return "Applied %d edits to %s" % (len(edits), path)


def ls(path="."):
    """The sorted paths in a directory; of a file, itself."""
    path = os.fspath(path)
    if not os.path.isdir(path):
        os.stat(path)
        return [path]
    return sorted(os.path.normpath(os.path.join(path, name)) for name in os.listdir(path))


def read_lines(path, start, end):
    """Lines start to end (0-based, end exclusive), joined by newlines."""
    return "\n".join(split_lines(read_file(path))[start:end])


def line_count(path):
    """The number of lines of a file."""
    return len(split_lines(read_file(path)))


def grep(pattern, path=".", *, max_results=50):
    """Lines that a regular expression matches, as "file:line: text", the files in sorted order."""
    import re

    expression = re.compile(pattern)
    results = []
    for name in walk_files(os.fspath(path)):
        try:
            with open(name, "rb") as file:
                text = file.read().decode("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        for number, line in enumerate(split_lines(text), 1):
            if len(results) >= max_results:
                return "\n".join(results)
            if expression.search(line):
                results.append("%s:%d: %s" % (name, number, line.rstrip("\r")))
    return "\n".join(results)


def walk_files(path):
    if not os.path.isdir(path):
        os.stat(path)
        yield path
        return
    for above, directories, files in os.walk(path):
        directories.sort()
        for name in sorted(files):
            full = os.path.normpath(os.path.join(above, name))
            if os.path.isfile(full):
                yield full


FILE_TOOLS = (read_file, write_file, append_file, edit_file, ls, read_lines, line_count, grep)
for _tool in FILE_TOOLS:
    visible(_tool)
