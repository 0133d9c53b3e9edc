"""The check of runtimes: ours pass it, and one that breaks a promise is told which."""
import os
import re

import pytest
import rlmflow
from conftest import PYTHON, ROOT
from rlmflow.testing import RuntimeFault, check_runtime

ALL = ("start resume many wake yield give_up children time_limit flood descriptors unicode input exit death done "
       "close leaks").split()
IN_PROCESS = [name for name in ALL if name not in ("descriptors", "death")]


def names(checked):
    return [c.name for c in checked]


def failed(runtime, only):
    """The checks of `only` that fail."""
    without = [name for name in ALL if name not in only]
    with pytest.raises(RuntimeFault) as e:
        check_runtime(runtime, text_size=1 << 20, without=without)
    assert names(e.value.checked) == only
    return [c.name for c in e.value.checked if c.wrong is not None]


def test_subprocess_passes():
    told = []
    checked = check_runtime(rlmflow.SubprocessRuntime(python=PYTHON), text_size=4 << 20, on_checked=told.append)
    assert names(checked) == ALL and checked == told


def test_command_passes():
    runtime = rlmflow.CommandRuntime(["sh", "-c", "{worker}"], python=PYTHON)
    assert names(check_runtime(runtime, text_size=4 << 20)) == ALL


def test_local_passes():
    assert names(check_runtime(rlmflow.LocalRuntime(), text_size=4 << 20)) == IN_PROCESS


class Passing(rlmflow.Backend):
    """Passes all on."""

    def __init__(self, inner):
        self.inner = inner

    async def start(self, code):
        return await self.inner.start(code)

    async def resume(self, results):
        return await self.inner.resume(results)

    async def close(self):
        await self.inner.close()


def wrapped(backend):
    class Wrapped(rlmflow.SubprocessRuntime):
        def open(self, graph):
            return backend(super().open(graph))

    return Wrapped(python=PYTHON)


def test_a_wrapper_that_passes_all_on_passes():
    assert names(check_runtime(wrapped(Passing), text_size=4 << 20)) == ALL


class Mute(Passing):
    """Loses what cells print."""

    def mute(self, outcome):
        return rlmflow.Finished(error=outcome.error) if isinstance(outcome, rlmflow.Finished) else outcome

    async def start(self, code):
        return self.mute(await super().start(code))

    async def resume(self, results):
        return self.mute(await super().resume(results))


class Mixed(Passing):
    """Gives each result to the next call."""

    async def resume(self, results):
        ids = [r.id for r in results]
        return await super().resume([rlmflow.CallResult(i, r.value, r.error)
                                     for i, r in zip(ids[1:] + ids[:1], results)])


class Leaking(Passing):
    """Opens what it does not close."""

    async def start(self, code):
        os.open("/dev/null", os.O_RDONLY)
        return await super().start(code)


class Raising(Passing):
    """Opens, and runs nothing."""

    async def start(self, code):
        raise RuntimeError("no cells today")


@pytest.mark.parametrize("backend, only, wanted", [
    (Mute, ["start", "give_up", "done"], ["start", "give_up"]),
    (Mixed, ["start", "many"], ["many"]),
    (Leaking, ["start", "exit", "leaks"], ["leaks"]),
    (Raising, ["start"], ["start"]),
])
def test_a_broken_promise_is_told(backend, only, wanted):
    assert failed(wrapped(backend), only) == wanted


def test_the_message_says_what_was_wrong():
    with pytest.raises(RuntimeFault, match="(?s)Wrapped failed 1 of 1 checks:.*- start .*: what the first cell printed"):
        check_runtime(wrapped(Mute), without=ALL[1:])


def test_a_check_that_is_none_is_refused():
    with pytest.raises(ValueError, match="flod.*there are start, .*leaks"):
        check_runtime(rlmflow.LocalRuntime(), without=["flod"])


def test_the_program_of_the_readme_checks(capsys):
    """With a command that opens no session in the place of one that needs a host."""
    code = re.search(r"^```python\n(import rlmflow\nfrom rlmflow.testing .*?)^```$", (ROOT / "README.md").read_text(),
                     re.M | re.S)[1]
    with pytest.raises(RuntimeFault, match="(?s)CommandRuntime failed .*exit status 1"):
        exec(re.sub(r"\[.*\]", '["false"]', code), {})
    assert len(capsys.readouterr().out.splitlines()) == len(ALL)
