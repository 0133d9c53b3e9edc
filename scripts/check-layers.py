#!/usr/bin/env python3
"""Checks that includes follow the architecture.

- A file of src/LAYER includes only its own layer and earlier ones; model, tool and runtime do not
  include each other; check and cli include only rlmflow.h and their own files.
- A third-party header is included only by its seam file, Python.h by nothing in src.
- With --headers: every header compiles alone (with $CC, cc by default).

Prints "FILE:LINE: what is wrong" for each violation and exits with 1 if there was one.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shlex
import subprocess
import sys

LAYERS = ["base", "graph", "model", "tool", "runtime", "flow", "view", "check", "cli"]
SIBLINGS = {"model", "tool", "runtime"}
PUBLIC = {"check", "cli"}  # written as any program could be: only rlmflow.h and their own files

# Which files may include a library's headers: the header's pattern, and its seam. A header that is
# part of a seam carries the library along, so only the seam's own files may include it.
SEAMS = [
    (re.compile(r"uv(/.*)?\.h"), {"base/loop.c"}),
    (re.compile(r"openssl/.*"), {"base/hash.c"}),
    (re.compile(r"curl/.*"), {"model/http.c", "model/http_call.c", "model/http_call.h",
                              "model/http_library.c", "model/http_library.h"}),
    (re.compile(r"pcre2.*\.h"), {"base/regex.c"}),
    (re.compile(r"sqlite3.*\.h"), {"view/sqlite_library.c", "view/sqlite_library.h", "view/sqlite_rows.c",
                                   "view/sqlite_rows.h", "view/export_sqlite.c"}),
    (re.compile(r"(.*/)?Python\.h"), set()),
]

# Headers that come with the compiler, the C library and the kernel.
SYSTEM = re.compile(
    r"(assert|complex|ctype|dirent|dlfcn|elf|endian|errno|fcntl|fenv|float|fnmatch|ftw|getopt|glob|grp"
    r"|inttypes|iso646|langinfo|libgen|limits|link|locale|malloc|math|mntent|net|netdb|nmmintrin"
    r"|paths|poll|pthread|pty|pwd|sched|search|semaphore|setjmp|signal|spawn|stdalign|stdarg"
    r"|stdatomic|stdbool|stddef|stdint|stdio|stdlib|stdnoreturn|string|strings|syscall|syslog"
    r"|termios|threads|time|uchar|unistd|utime|wchar|wctype|wordexp|immintrin|x86intrin|cpuid)\.h"
    r"|(arpa|asm|linux|net|netinet|sys|bits)/[\w/.-]+\.h"
)

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>|(\S.*))')
COMMENT_OR_TEXT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)


def blank_comments(text):
    """Returns `text` without its comments; lines keep their numbers, string literals their text."""

    def blank(match):
        found = match.group()
        return found if found.startswith('"') else "\n" * found.count("\n")

    return COMMENT_OR_TEXT.sub(blank, text)


def check_quoted(name, target, source):
    """Returns what is wrong with `#include "target"` in `name` (a path below src), or None."""
    own = name.split("/")[0]
    if target == "rlmflow.h":
        return None
    for _, seam in SEAMS:
        if target in seam and name not in seam:
            return f'"{target}" is part of a seam: only {", ".join(sorted(seam))} may include it'
    theirs = target.split("/")[0]
    if "/" not in target or theirs not in LAYERS:
        return f'"{target}" is not written as "LAYER/..." (layers: {", ".join(LAYERS)})'
    if ".." in target.split("/"):
        return f'"{target}" must name its layer and not go up'
    if not target.endswith(".h"):
        return f'"{target}" is not a header'
    if own == theirs:
        return None if (source / target).is_file() else f'"{target}" does not exist'
    if own in PUBLIC:
        return f'"{target}": {own} uses only rlmflow.h and its own headers'
    if own in SIBLINGS and theirs in SIBLINGS:
        return f'"{target}": {", ".join(sorted(SIBLINGS))} do not include each other'
    if LAYERS.index(theirs) > LAYERS.index(own):
        return f'"{target}": {own} comes before {theirs}, so it must not know it'
    return None if (source / target).is_file() else f'"{target}" does not exist'


def check_foreign(name, target):
    """Returns what is wrong with including the library or system header `target`, or None."""
    for pattern, seam in SEAMS:
        if pattern.fullmatch(target):
            if name in seam:
                return None
            where = f"only {', '.join(sorted(seam))} may" if seam else "no file of src may"
            return f"<{target}>: {where} include it"
    if SYSTEM.fullmatch(target):
        return None
    return f"<{target}> is no system header known here; give it a seam in {pathlib.Path(__file__).name}"


def check_file(path, source):
    """Yields (line number, what is wrong) of one source file."""
    name = path.relative_to(source).as_posix()
    if name.split("/")[0] not in LAYERS:
        yield 1, f"no layer has this place (layers: {', '.join(LAYERS)})"
        return
    text = blank_comments(path.read_text(encoding="utf-8", errors="replace"))
    for number, line in enumerate(text.split("\n"), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quoted, angled, other = match.groups()
        if other:
            yield number, f"an include by macro cannot be checked: {other.strip()}"
            continue
        is_foreign = any(pattern.fullmatch(quoted or angled) for pattern, _ in SEAMS)
        is_ours = (angled or "").split("/")[0] in LAYERS and "/" in (angled or "")
        if is_ours or angled == "rlmflow.h":
            yield number, f'write "{angled}", not <{angled}>'
            wrong = check_quoted(name, angled, source)
        elif quoted and not is_foreign:
            wrong = check_quoted(name, quoted, source)
        else:
            wrong = check_foreign(name, quoted or angled)
        if wrong:
            yield number, wrong


def compile_header(path, root):
    """Compiles one header alone; returns the compiler's complaint, or None."""
    command = shlex.split(os.environ.get("CC", "cc")) + [
        "-std=gnu17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter",
        "-I", str(root / "include"), "-I", str(root / "src"), "-fsyntax-only", "-x", "c", "-",
    ]  # fmt: skip
    # Twice, so that a header without a guard is found too.
    text = f'#include "{path}"\n' * 2
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    return None if done.returncode == 0 else done.stderr


def check_headers(root, headers):
    """Yields (path, what is wrong) for headers that do not compile alone."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, wrong in zip(headers, pool.map(lambda path: compile_header(path, root), headers)):
            if wrong:
                lines = [line for line in wrong.splitlines() if "error" in line] or [wrong.strip()]
                yield path, f"does not compile alone: {lines[0]}"


def main():
    parser = argparse.ArgumentParser(description="Checks that includes follow the architecture.")
    parser.add_argument("--headers", action="store_true", help="also compile every header alone")
    parser.add_argument("root", nargs="?", type=pathlib.Path, help="the source tree")
    options = parser.parse_args()
    root = (options.root or pathlib.Path(__file__).resolve().parent.parent).resolve()
    source = root / "src"
    files = sorted(p for p in source.rglob("*") if p.suffix in {".c", ".h"})
    if not files:
        print(f"{source}:1: no source files", file=sys.stderr)
        return 2
    violations = 0
    for path in files:
        for number, wrong in check_file(path, source):
            print(f"{path.relative_to(root)}:{number}: {wrong}")
            violations += 1
    if options.headers:
        headers = [p for p in files if p.suffix == ".h"] + sorted((root / "include").glob("*.h"))
        for path, wrong in check_headers(root, headers):
            print(f"{path.relative_to(root)}:1: {wrong}")
            violations += 1
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
