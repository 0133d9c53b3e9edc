"""Interrupts end a cell, whatever it does, and keep its variables."""
import time

import pytest
from workers import host, ok, python, shared  # noqa: F401


@pytest.mark.parametrize("code", [
    "while True: pass",
    "import time\ntime.sleep(60)",
    "import subprocess\nsubprocess.run(['sleep', '60'])",
    "import asyncio\nawait asyncio.sleep(60)",
    "import asyncio\nasyncio.run(asyncio.sleep(60))",
    "import asyncio\nt = asyncio.create_task(asyncio.sleep(50))\nwhile True:\n    await asyncio.sleep(0)",
    "import signal\nsignal.signal(signal.SIGINT, lambda *a: None)\nimport threading\nthreading.Event().wait(60)",
    "while True: print('x', end='')",
    "while True:\n    try: import time; time.sleep(60)\n    except Exception: pass",
])
def test_an_interrupt_ends_the_cell_and_keeps_variables(host, code):
    host.start("kept = 41\n" + code)
    time.sleep(0.05)
    host.send("interrupt", {"reason": "exec_timeout", "message": "the cell ran for 2 s"})
    message = host.drive()
    assert message["error"]["type"] == "CellInterrupted" and message["error"]["message"] == "the cell ran for 2 s"
    assert ok(host.run("kept + 1")) == "42\n"


@pytest.mark.parametrize("code", ["search('q')", "await llm_query('q')",
                                  "import threading\nt = threading.Thread(target=quietly)\nt.start()\nt.join()"])
def test_an_interrupt_reaches_a_cell_that_waits_for_the_host(host, code):
    ok(host.run("def quietly():\n    try: search('q')\n    except ToolInterrupted: pass"))
    host.start(code)
    kind, message = host.read()
    assert kind == "suspended"
    host.resume()
    host.send("interrupt", {"reason": "stopped", "message": "stop"})
    message = host.drive()
    assert message["error"]["type"] == "CellInterrupted"
    assert len(message["cancelled"]) == 1


def test_an_interrupt_ends_a_suspended_cell(host):
    host.start("x = await llm_query('q')")
    kind, message = host.read()
    host.send("interrupt", {"reason": "stopped", "message": "stop"})
    assert host.read()[0] == "wake"
    host.resume()
    kind, finished = host.read()
    assert kind == "finished" and finished["error"]["type"] == "CellInterrupted"
    assert finished["cancelled"] == [message["calls"][0]["id"]]


def test_code_that_swallows_an_interrupt_gets_the_next(host):
    host.start("import time\nk = 0\nwhile k < 2:\n    try: time.sleep(60)\n    except BaseException: k += 1\nk")
    for _ in range(2):
        time.sleep(0.2)
        host.send("interrupt", {"reason": "exec_timeout", "message": "x"})
    assert ok(host.drive()) == "2\n"


def test_an_interrupt_between_cells_is_ignored(host):
    ok(host.run("1"))
    host.send("interrupt", {"reason": "x", "message": "x"})
    assert ok(host.run("import time\ntime.sleep(0.05)\n2")) == "2\n"
