"""scripts/count-tests.py, whose last line people trust."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "scripts" / "count-tests.py"
PASSES = '<testcase classname="m" name="test_a"/>'
FAILS = '<testcase classname="m" name="test_b"><failure/></testcase>'
ERROR = '<testcase classname="m" name="test_b"><error/></testcase>'
OTHER = '<testcase classname="n" name="test_b"/>'
SKIPPED = '<testcase classname="m" name="test_c"><skipped/></testcase>'


@pytest.mark.parametrize("cases, line", [
    ([PASSES], "1 passed, 0 failed"), ([PASSES, PASSES], "2 passed, 0 failed"),
    ([PASSES, FAILS, ERROR], "1 passed, 1 failed"),
    ([FAILS.replace("<failure/>", ""), ERROR], "0 passed, 1 failed"),
    ([FAILS, OTHER, SKIPPED], "1 passed, 2 failed"), ([], "0 passed, 1 failed"),
])
def test_each_test_counts_once(tmp_path, cases, line):
    (tmp_path / "a.xml").write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    r = subprocess.run([sys.executable, PROGRAM, tmp_path / "a.xml"], capture_output=True, text=True)
    assert r.stdout.splitlines()[-1] == line and r.returncode == (0 if line.endswith(" 0 failed") else 1)


def test_a_test_whose_cleaning_up_fails_too_counts_once(tmp_path):
    """As pytest reports it."""
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.fixture\ndef f():\n    yield\n    assert 0\n"
        "def test_both(f): assert 0\ndef test_after(f): pass\ndef test_fine(): pass\n")
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml", "out.xml", "."],
                   cwd=tmp_path, capture_output=True)
    (tmp_path / "broken.xml").write_text("<testsuite>")
    for files, line in ((["out.xml"], "1 passed, 2 failed"), (["out.xml", "broken.xml"], "1 passed, 3 failed")):
        r = subprocess.run([sys.executable, PROGRAM, *files], cwd=tmp_path, capture_output=True, text=True)
        assert r.returncode == 1 and r.stdout.splitlines()[-1] == line, r.stdout
