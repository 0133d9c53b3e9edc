"""One beginning, two ends: a run is forked behind its first turn, goes on in another way, and the two are compared.

Prints:

    first: the mean is 3.0
    second: the median is 2
    both began with [1, 2, 2, 4, 6]
"""
import os
import tempfile

import rlmflow
from offline import Offline

runtime = rlmflow.SubprocessRuntime()  # code in plain child processes: it can do what you can do
here = tempfile.mkdtemp()
first, second = os.path.join(here, "first.rlm"), os.path.join(here, "second.rlm")

model = Offline("numbers = sorted([4, 1, 2, 6, 2])\nprint(numbers)",
                'done(f"the mean is {sum(numbers) / len(numbers)}")')
print("first:", rlmflow.Flow(model, runtime=runtime).run("Describe the numbers.", journal=first))

# The fork has the first turn already, and with restore="replay" also its variables: the cell runs again.
other = Offline("", 'done(f"the median is {numbers[len(numbers) // 2]}")')
flow = rlmflow.Flow(other, runtime=runtime)
flow.fork(first, "turn1", second)
print("second:", flow.resume(second, restore="replay"))

a, b = rlmflow.Graph.load(first), rlmflow.Graph.load(second)
same = [x.output for x, y in zip(a.nodes, b.nodes) if x.type == "exec_output" and x.output == y.output]
print("both began with", same[0].strip())
