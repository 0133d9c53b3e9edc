"""FILE_TOOLS."""
from workers import host, make_host, ok, python, shared  # noqa: F401


def test_file_tools(host, tmp_path):
    ok(host.run("import os\nos.chdir(%r)" % str(tmp_path)))
    assert ok(host.run("print(write_file('d/a.txt', 'é\\r\\nb\\n'))")) == "Wrote 6 bytes to d/a.txt\n"
    assert (tmp_path / "d/a.txt").read_bytes() == "é\r\nb\n".encode()
    assert ok(host.run("read_file('d/a.txt'), line_count('d/a.txt'), read_lines('d/a.txt', 0, 1)")) == "('é\\r\\nb\\n', 2, 'é\\r')\n"
    assert ok(host.run("print(append_file('d/a.txt', 'c'))")) == "Appended 1 bytes to d/a.txt\n"
    assert ok(host.run("print(edit_file('d/a.txt', ('b', 'B'), ('c', 'C')))")) == "Applied 2 edits to d/a.txt\n"
    assert (tmp_path / "d/a.txt").read_bytes() == "é\r\nB\nC".encode()
    assert "anchor not found" in host.run("edit_file('d/a.txt', ('B', 'x'), ('zz', 'y'))")["error"]["message"]
    ok(host.run("write_file('d/t.txt', 'xx')\nNone"))
    assert "appears 2x" in host.run("edit_file('d/t.txt', ('x', 'y'))")["error"]["message"]
    assert ok(host.run("edit_file('d/t.txt', ('x', 'y'), replace_all=True)\nread_file('d/t.txt')")) == "'yy'\n"
    assert ok(host.run("ls(), ls('d'), ls('d/a.txt')")) == "(['d'], ['d/a.txt', 'd/t.txt'], ['d/a.txt'])\n"
    assert ok(host.run("ls(%r)" % str(tmp_path / "d"))) == repr([str(tmp_path / "d/a.txt"), str(tmp_path / "d/t.txt")]) + "\n"
    (tmp_path / "d" / "bin").write_bytes(b"\xff\xfeB")
    assert ok(host.run("print(grep('[By]', '.'))")) == "d/a.txt:2: B\nd/t.txt:1: yy\n"
    assert ok(host.run("print(grep('[By]', max_results=1))")) == "d/a.txt:2: B\n"
    (tmp_path / "raw").write_bytes(b"a\xff\r\n")
    ok(host.run("write_file('raw2', read_file('raw'))\nNone"))
    assert (tmp_path / "raw2").read_bytes() == b"a\xff\r\n"
    assert host.run("read_file('missing')")["error"]["type"] == "FileNotFoundError"
    ok(host.run("os.chdir('/')"))


def test_no_file_tools_unless_asked(python):
    with make_host(python, file_tools=False) as host:
        assert host.run("read_file")["error"]["type"] == "NameError"
