"""A person, or a rule, sees each piece of code before it runs.

Prints:

    refused: import shutil; shutil.rmtree("build")
    I was not allowed to.
"""
import rlmflow
from offline import Offline


class ReviewingFlow(rlmflow.Flow):
    async def exec_turn(self, graph, code, *, replay=False):
        # It may take its time: input(), a chat message, another model. Nothing else waits meanwhile.
        if not replay and "rmtree" in code:
            print("refused:", code)
            node = rlmflow.ErrorOutput(content="The reviewer has refused this.", error="rejected")
            self.append_node(graph, node)
            return node  # the model sees it as it sees any failure
        return await super().exec_turn(graph, code, replay=replay)


model = Offline('import shutil; shutil.rmtree("build")', 'done("I was not allowed to.")')
print(ReviewingFlow(model, runtime=rlmflow.SubprocessRuntime()).run("Tidy up."))
