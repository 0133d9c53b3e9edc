"""A program is killed in the middle of a run, and the run goes on: nothing that was paid for is bought again.

Prints:

    the first program was killed
    the answer is 42
    calls of the model by the second program: 1
"""
import os
import signal
import subprocess
import sys
import tempfile

import rlmflow
from offline import Offline


class Killed(Offline):
    """The machine loses its power when the second turn is asked for."""

    def chat(self, messages):
        if len(messages) > 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().chat(messages)


class Counted(Offline):
    calls = 0

    def chat(self, messages):
        self.calls += 1
        return super().chat(messages)


runtime = rlmflow.SubprocessRuntime()  # code in plain child processes: it can do what you can do
TURNS = "half = 21", 'done(f"the answer is {2 * half}")'

if len(sys.argv) > 1:  # the first program
    rlmflow.Flow(Killed(*TURNS), runtime=runtime).run("What is the answer?", journal=sys.argv[1])

journal = os.path.join(tempfile.mkdtemp(), "run.rlm")
if subprocess.run([sys.executable, __file__, journal]).returncode == -signal.SIGKILL:
    print("the first program was killed")

# All that the first turn has done is in the journal. Its cell runs again here, since its session is gone.
model = Counted(*TURNS)
print(rlmflow.Flow(model, runtime=runtime).resume(journal, restore="replay"))
print("calls of the model by the second program:", model.calls)
