"""The interpreters of this machine that tests run on."""
import glob
import os
import shutil
import subprocess

DEBIAN = "/usr/bin/python3"


def interpreters():
    """Debian's, always, and any other version found on PATH or where pyenv keeps them."""
    found = {}
    for minor in range(8, 15):
        name = "python3.%d" % minor
        for path in [shutil.which(name)] + sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/" + name))):
            if path and minor not in found:
                found_one = subprocess.run([path, "-c", "import ctypes, sys; print(sys.executable)"],
                                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                if found_one.returncode == 0:
                    found[minor] = found_one.stdout.strip()
    paths = [DEBIAN] + [p for p in found.values() if os.path.realpath(p) != os.path.realpath(DEBIAN)]
    return paths
