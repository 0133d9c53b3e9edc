"""peers.py [--venvs DIR] [--site SITE] [--quick] [NAME...]: this package beside what users have, in one run.

Each engine gets a virtual environment in DIR (build/peers-venvs unless given), which is made with pip when it
is not there: the peers from PyPI in the versions of engines.py, "ours" from this tree, anew when its commit
has changed. SITE is a directory with the package (build/python/site after the tests have run), taken instead.

Each figure is measured in a child process of its own, with a scripted client that answers at once
(peers/child.py); one that takes longer than its limit is killed, and shown so. Memory is that of the process
tree (PSS, and files in memory that are not mapped), read every 20 ms in a second run of the same, so that
reading it costs the times nothing. --quick tries everything with numbers so small that they say nothing.
NAME...: only these engines."""
import argparse
import json
import pathlib
import statistics
import subprocess
import time

from engines import PEERS, ROOT, Engine

PROBE = """
import importlib.metadata, json, os, sys, sysconfig
site, seed = sys.argv[1], ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence")
size = sum(os.path.getsize(os.path.join(where, file)) for where, _, files in os.walk(site) for file in files
           if not os.path.relpath(os.path.join(where, file), site).startswith(seed))
names = {found.metadata["Name"] for found in importlib.metadata.distributions(path=[site])}
print(json.dumps([size, len(names - {"pip", "setuptools"})]))
"""


class Real:
    """What is measured: seconds of turns, children, MiB of text, imports; and when a child is killed."""
    seconds, children, mebibytes, imports, limit_s = 10, (200, 1000), (100, 1024), 10, 150


class Quick(Real):
    seconds, children, mebibytes, imports, limit_s = 0.05, (10, 20), (1, 4), 2, 30


def table(title, header, rows):
    print(f"\n{title}\n")
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, ["-" * width for width in widths], *rows]:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |")
    print(end="", flush=True)


def each_variant(engines, cells):
    return [[f"{engine.name}: {variant}", *cells(engine, variant)]
            for engine in engines for variant in engine.variants]


def turns(engines, size):
    def cells(engine, variant):
        got = engine.measure(variant, "turns", size.seconds, size.limit_s)
        if "failed" in got:
            return [got["failed"], "", "", ""]
        return [f"{got[what][which] * 1e3:.3f}" for what in ("one", "turn") for which in ("median", "best")]

    table("A run of one turn, and each further turn (from one model call to the next of eleven), ms",
          ["engine", "run: median", "best", "turn: median", "best"], each_variant(engines, cells))


def children(engines, size, count):
    def cells(engine, variant):
        got = engine.measure(variant, "wide", count, size.limit_s)
        if "failed" in got:
            return ["", got["failed"], "", ""]
        sampled = engine.measure(variant, "wide", count, size.limit_s, sampled=True)
        peak = sampled.get("failed") or f"{sampled['peak'] / 1024:.0f}"
        return [got["how"], f"{got['seconds']:.3f}", str(got["failures"]), peak]

    table(f"{count} children of one turn each, 64 at a time",
          ["engine", "how", "s", "wrong or missing", "peak memory, MiB"], each_variant(engines, cells))


def inputs(engines, size, mebibytes):
    def cells(engine, variant):
        got = engine.measure(variant, "big", mebibytes, size.limit_s)
        if "failed" in got:
            return [got["failed"], "", ""]
        sampled = engine.measure(variant, "big", mebibytes, size.limit_s, sampled=True)
        peak = sampled.get("failed") or f"{(sampled['peak'] - sampled['before']) / 1024:.0f}"
        return [f"{got['first']:.4f}", f"{got['seconds']:.4f}", peak]

    table(f"A text input of {mebibytes} MiB, which the caller holds",
          ["engine", "to the first model call, s", "whole run, s", "peak memory beyond the start, MiB"],
          each_variant(engines, cells))


def installed(engines, size):
    def start_ms(engine, code):
        path = f"import sys; sys.path.insert(0, {engine.site!r}); " if engine.site else ""
        times = []
        for _ in range(size.imports):
            began = time.perf_counter()
            subprocess.run([engine.python, "-I", "-c", path + code], check=True)
            times.append((time.perf_counter() - began) * 1e3)
        return statistics.median(times)

    rows = []
    for engine in engines:
        start_ms(engine, f"import {engine.imported}")  # its files are read, and compiled
        took = start_ms(engine, f"import {engine.imported}") - start_ms(engine, "pass")
        site = engine.site or str(next(engine.folder.glob("lib/python*/site-packages")))
        counted, packages = json.loads(subprocess.check_output([engine.python, "-I", "-c", PROBE, site]))
        rows.append([engine.name, f"{took:.1f}", f"{counted / 1e6:.1f}", str(max(packages - 1, 0))])
    table("Import (less that of a bare interpreter), and what pip installs",
          ["engine", "import, ms", "installed, MB", "dependencies"], rows)


def main():
    names = ["ours", *PEERS]
    parser = argparse.ArgumentParser()
    parser.add_argument("--venvs", type=pathlib.Path, default=ROOT / "build" / "peers-venvs")
    parser.add_argument("--site")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("names", nargs="*", choices=[*names, []], metavar="NAME")
    given = parser.parse_args()
    size = Quick if given.quick else Real
    engines = [Engine(name, given.venvs.resolve(), given.site) for name in given.names or names]
    for engine in engines:
        engine.prepare()
    turns(engines, size)
    for count in size.children:
        children(engines, size, count)
    for mebibytes in size.mebibytes:
        inputs(engines, size, mebibytes)
    installed(engines, size)


main()
