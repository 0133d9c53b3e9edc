"""rlms: the local environment. It makes its clients by the name of a provider, so that lookup is replaced.
The children's model has a name of its own; they read their numbers from the context, which no model sees."""
import rlm.core.rlm as core
from rlm import RLM
from rlm.clients.base_lm import BaseLM
from rlm.core.types import ModelUsageSummary, UsageSummary

LAST = "answer['content'] = 'x'\nanswer['ready'] = True"
LENGTH = "answer['content'] = str(len(context))\nanswer['ready'] = True"
ECHO = "answer['content'] = '<' + context.split('-')[1] + '>'\nanswer['ready'] = True"
HOW = "64 at once"


def root(children):
    return (f"r = rlm_query_batched([f'child-{{i}}' for i in range({children})], model='child')\n"
            "answer['content'] = str(sum(f'<{i}>' in a for i, a in enumerate(r)))\nanswer['ready'] = True")


class Client(BaseLM):
    def __init__(self, reply, model_name):
        super().__init__(model_name)
        self.reply = reply

    def completion(self, prompt):
        return f"```repl\n{ECHO if self.model_name == 'child' else self.reply()}\n```"

    async def acompletion(self, prompt):
        return self.completion(prompt)

    def get_last_usage(self):
        return ModelUsageSummary(total_calls=1, total_input_tokens=100, total_output_tokens=10)

    def get_usage_summary(self):
        return UsageSummary(model_usage_summaries={self.model_name: self.get_last_usage()})


def engine(reply):
    core.get_client = lambda backend, kwargs: Client(reply, kwargs["model_name"])
    return RLM(backend="openai", backend_kwargs={"model_name": "root"}, environment="local", max_depth=2,
               max_concurrent_subcalls=64, verbose=False)


def one(variant, reply):
    made = engine(reply)
    return lambda: made.completion("q").response


def wide(variant, children, reply):
    return one(variant, reply)


def big(variant, text, reply):
    made = engine(reply)
    return lambda: made.completion(text).response
