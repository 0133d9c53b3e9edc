"""Where the system gives no more descriptors, sub-agents fail as values and the run goes on."""

import resource

import pytest
from program import script_text
from replies import cell


@pytest.mark.parametrize("limit", [64, 256])
def test_too_few_descriptors_for_all_sub_agents(workspace, tmp_path, limit):
    (tmp_path / "model").write_text(script_text([
        ({"agent": "root"}, cell("r = await launch_subagents([{'query': f'work {i}'} for i in range(64)])\n"
                                 "print(r.count('ok'), sum(str(x).startswith('[failed:') for x in r))\n"
                                 "done(len(r))")),
        ({"agent": "root.*"}, cell("done('ok')")),
    ]))
    process = workspace.start(
        "run", "go", "--model", f"script:{tmp_path / 'model'}", "--quiet", "-o", tmp_path / "run",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, b"64\n"), err.decode()
