"""A model that needs no network and no key: it says what an example has it say. In a program of your own,
`rlmflow.OpenAIClient(model="...")` or `rlmflow.AnthropicClient()` stands in its place."""


class Offline:
    """Replies with these pieces of Python, one a turn; `children` is what each sub-agent replies."""

    def __init__(self, *turns, children=()):
        self.turns, self.children = turns, children

    def chat(self, messages):
        task = messages[1]["content"]
        turns = self.children if "sub-agent" in task else self.turns
        turn = sum(m["role"] == "assistant" for m in messages)
        return f"```repl\n{turns[turn].strip()}\n```"
