"""A runtime over any command that passes a byte stream on. Here it is a shell on this machine; `ssh`, `kubectl exec`,
`docker exec -i`, `unshare` or a console of a virtual machine are named in the same way.

Prints:

    a shell of my own, far away
"""
import rlmflow
from offline import Offline

# ssh takes a line of shell:  CommandRuntime(["ssh", "-T", "HOST", "{worker}"])
# kubectl takes words:        CommandRuntime(["kubectl", "exec", "-i", "POD", "--"])
runtime = rlmflow.CommandRuntime(["sh", "-c", "WHERE='far away'; export WHERE; {worker}"])

model = Offline('import os; done("a shell of my own, " + os.environ["WHERE"])')
print(rlmflow.Flow(model, runtime=runtime).run("Where are you?"))
