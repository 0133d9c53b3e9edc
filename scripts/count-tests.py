#!/usr/bin/env python3
"""count-tests.py JUNIT_FILE...: adds up the results of test runs and prints "N passed, N failed".

A test that was skipped counts as failed: one that cannot run here has to say so by failing. One that
failed more than once (in its body and in what cleans up after it) counts once. A file that is missing or
broken is one failure. Exits with 1 when something failed.
"""

import sys
import xml.etree.ElementTree as ElementTree


def count(path):
    """Returns (passed, names of the failed) of one JUnit file."""
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as exc:
        return 0, [f"{path}: {exc}"]
    passed, failed = [], {}
    for case in root.iter("testcase"):
        name = f"{case.get('classname', '')} {case.get('name', '')}".strip()
        if any(case.find(kind) is not None for kind in ("failure", "error", "skipped")):
            failed[name] = None
        else:
            passed.append(name)
    if not passed and not failed:
        failed[f"{path}: no test ran"] = None
    return sum(name not in failed for name in passed), list(failed)


def main():
    passed, failed = 0, []
    for path in sys.argv[1:]:
        more, wrong = count(path)
        passed += more
        failed += wrong
    for name in failed:
        print(f"failed: {name}")
    print(f"{passed} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
