"""scripts/join-worker.py: one text of the parts of worker/, and what it refuses to join."""
import os
import shutil
import subprocess
import sys

import pytest
from worker_host import ROOT


@pytest.fixture
def join(tmp_path):
    """join(part=None, old="", new="", output=None): joins a copy of the parts of which one was changed."""
    shutil.copytree(os.path.join(ROOT, "worker"), tmp_path / "worker")
    (tmp_path / "scripts").mkdir()
    script = shutil.copy(os.path.join(ROOT, "scripts", "join-worker.py"), tmp_path / "scripts")

    def run(part=None, old="", new="", output=()):
        if part:
            path = tmp_path / "worker" / part
            text = path.read_text() if path.exists() else ""
            assert old in text
            path.write_text(text.replace(old, new, 1) if old else text + new)
        return subprocess.run([sys.executable, script, *output], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True)

    return run


def test_the_text_has_each_import_once_and_no_parts(join):
    result = join()
    assert result.returncode == 0 and not result.stderr
    lines = result.stdout.splitlines()
    assert lines.count("import os") == 1 and not [line for line in lines if line.startswith("from .")]
    assert result.stdout.startswith('"""The program inside every session')
    compile(result.stdout, "<worker>", "exec")


def test_it_is_made_again_when_a_part_changes(join, tmp_path):
    target, depfile = tmp_path / "out.py", tmp_path / "out.d"
    assert join(output=[target, depfile]).returncode == 0
    assert target.read_text() == join().stdout
    made, needs = depfile.read_text().split(":")
    assert made == str(target)
    assert sorted(map(os.path.basename, needs.split())) == sorted(os.listdir(tmp_path / "worker"))


@pytest.mark.parametrize("part, old, new, why", [
    ("values.py", "", "\ndef move_high(fd):\n    return fd\n",
     "worker/values.py: move_high has another meaning already: descriptors"),
    ("values.py", "import os\n", "import posix as os\n",
     "worker/values.py: os has another meaning already: import os"),
    ("values.py", "from .descriptors import read_whole\n", "",
     "worker/values.py: it uses read_whole, which it neither defines nor imports"),
    ("values.py", "import os\n", "", "worker/values.py: it uses os, which it neither defines nor imports"),
    ("values.py", "import os\n", "import os\nimport sys\n", "worker/values.py: it imports sys and does not use it"),
    ("values.py", "import read_whole", "import read_whole as read_all",
     "worker/values.py: it gives another name to what it imports from descriptors"),
    ("output.py", '"""\n', '"""\nfrom .session import Session\n',
     "worker/output.py: it imports Session from session, which does not define it or comes later"),
    ("output.py", '"""\n', '"""\nfrom .descriptors import Session\n',
     "worker/output.py: it imports Session from descriptors, which does not define it or comes later"),
    ("output.py", "", "\ndef f():\n    from .errors import Failure\n    return Failure\n",
     "worker/output.py: it imports another part inside a function"),
    ("main.py", "", "\ndef f():\n    global SIGNAL\n    SIGNAL = 9\n",
     "worker/main.py: SIGNAL has another meaning already: interrupts"),
    ("output.py", "def gap", "x = 1\n\n\ndef gap", None),
    ("stray.py", "", '"""No part."""\n', "worker/ holds stray"),
])
def test_what_does_not_fit_is_refused(join, part, old, new, why):
    result = join(part, old, new)
    if why is None:
        assert result.returncode == 0
    else:
        assert result.returncode == 1 and why in result.stderr and not result.stdout
