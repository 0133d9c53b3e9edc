"""What is installed works where it was put, and goes away again."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def installed(build_dir, tmp_path_factory):
    """(DESTDIR, the prefix in it) of an installation."""
    target = tmp_path_factory.mktemp("installed")
    subprocess.run(["meson", "install", "-C", build_dir, "--no-rebuild", "--destdir", target], check=True,
                   capture_output=True, env={**os.environ, "PATH": f"/usr/bin:{os.environ['PATH']}"})
    return target, next(target.rglob("bin/rlmflow")).parents[1]


def test_the_program_finds_its_library_with_nothing_else_to_do(installed):
    r = subprocess.run([installed[1] / "bin" / "rlmflow", "version"], env={}, capture_output=True, text=True)
    assert (r.returncode, r.stderr) == (0, "") and r.stdout.startswith("rlmflow 0.")


def test_a_c_program_builds_with_pkg_config(installed, tmp_path):
    destination, prefix = installed
    folder = next(prefix.rglob("rlmflow.pc")).parent
    env = {"PATH": "/usr/bin:/bin", "PKG_CONFIG_PATH": str(folder), "PKG_CONFIG_SYSROOT_DIR": str(destination)}
    program = tmp_path / "minimal"
    command = f"cc {ROOT}/examples/minimal.c -o {program} $(pkg-config --cflags --libs rlmflow)"
    r = subprocess.run(["/bin/sh", "-c", command], env=env, capture_output=True, text=True)
    assert (r.returncode, r.stderr) == (0, ""), r.stderr
    (tmp_path / "text").write_text("olleh")
    (tmp_path / "script").write_text("@reply\n```repl\ndone(text[::-1])\n```\n")
    r = subprocess.run([program, "Turn it.", tmp_path / "text", f"script:{tmp_path}/script"],
                       env={"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(folder.parent)},
                       capture_output=True, text=True, timeout=60)
    assert (r.returncode, r.stdout) == (0, "answered: hello \n"), r.stderr


def test_a_prefix_that_cannot_be_written_is_said_before_anything_is_built(tmp_path):
    r = subprocess.run([ROOT / "scripts" / "install", tmp_path / "no-build", "/dev/null/prefix"],
                       capture_output=True, text=True)
    assert r.returncode == 1 and "sudo make install" in r.stderr and "PREFIX=~/.local" in r.stderr


def test_uninstall_removes_what_was_installed(tmp_path):
    program, folder = tmp_path / "bin" / "rlmflow", tmp_path / "bin"
    folder.mkdir()
    program.write_text("")
    (folder / "other").write_text("")
    (tmp_path / "installed-files").write_text(f"# a list\n{folder}\n{program}\n{folder}/gone already\n")
    command = [ROOT / "scripts" / "install", "--uninstall", tmp_path]
    assert subprocess.run(command, capture_output=True).returncode == 0
    assert [path.name for path in folder.iterdir()] == ["other"]
    r = subprocess.run(command, capture_output=True, text=True)
    assert r.returncode == 1 and "make install" in r.stderr
