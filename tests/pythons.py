"""The interpreters of this machine that tests run on."""
import functools
import glob
import os
import shutil
import subprocess

DEBIAN = "/usr/bin/python3"
NEWEST = 14
# Where interpreters are put that are on no PATH: by hand, and by programs that keep several versions.
PREFIXES = ("/usr/local", "/opt/*", "/opt/*/*", "~/.local", "~/.local/share/*/*/*", "~/.*/versions/*")


def _candidates(name):
    """First those of RLMFLOW_PYTHONS, directories as PATH has them."""
    directories = os.environ.get("RLMFLOW_PYTHONS", "").split(":") + os.environ.get("PATH", "").split(":")
    yield from filter(None, (shutil.which(name, path=directory) for directory in directories if directory))
    for prefix in PREFIXES:
        yield from sorted(glob.glob(os.path.expanduser(f"{prefix}/bin/{name}")))


@functools.lru_cache(None)
def interpreters():
    """Debian's, always, and one of each other version that is here, in order of age."""
    found = []
    for minor in range(8, NEWEST + 1):
        for path in _candidates(f"python3.{minor}"):
            asked = subprocess.run([path, "-c", "import ctypes, sys; print(sys.executable)"],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            if asked.returncode == 0:
                found.append(asked.stdout.strip())
                break
    return [DEBIAN] + [path for path in found if os.path.realpath(path) != os.path.realpath(DEBIAN)]


@functools.lru_cache(None)
def version(python):
    """(3, 11, 2)"""
    asked = subprocess.run([python, "-c", "import sys; print(*sys.version_info[:3])"], capture_output=True, text=True)
    return tuple(map(int, asked.stdout.split()))


def report(what, oldest, newest):
    """Lines that say on which of the versions 3.`oldest` to 3.`newest` something was tested, and on which not: tests
    take those that are here, and a machine with few of them must not look like one with all."""
    versions = {version(path): path for path in interpreters()}
    tested = ", ".join(f"{'.'.join(map(str, v))} ({versions[v]})" for v in sorted(versions) if v[1] >= oldest)
    yield f"{what} tested with Python {tested}"
    missing = sorted(set(range(oldest, newest + 1)) - {v[1] for v in versions})
    if missing:
        yield f"{what} NOT tested with Python {', '.join(f'3.{m}' for m in missing)}: not installed here"
