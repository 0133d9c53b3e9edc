"""System prompts made of named sections."""
from __future__ import annotations

import dataclasses
import textwrap
from typing import Any, Callable, Iterable, List, Optional, Tuple, Union

from . import _engine
from ._arguments import Arguments
from .values import kind_of

__all__ = ["DEFAULT_BUILDER", "SYSTEM_PROMPT", "PromptBuilder", "Section"]

#: A text, or what makes one for an agent: a callable of (flow, graph). A section without text is left out.
Body = Union[str, Callable[[Any, Any], str]]


@dataclasses.dataclass(frozen=True)
class Section:
    """The part `name` of a prompt, under a heading of that `level` (1: "#") if it has a `title`. `body` is a text,
    or a function of (flow, graph) that returns one."""

    name: str
    body: Body = ""
    title: Optional[str] = None
    level: int = 2

    def __post_init__(self) -> None:
        checked = Arguments("a section of a prompt")
        checked.text("name", self.name, False)
        checked.string("title", self.title)
        if not 1 <= (checked.whole("level", self.level, what="headings have levels 1 to 6") or 0) <= 6:
            raise checked.wrong("level", self.level, "headings have levels 1 to 6")

    def render(self, flow: Any, graph: Any) -> str:
        """Its text for an agent of `flow` whose graph is `graph`, with its heading; "" if it has none.
        TypeError: `body` returned no str."""
        text = self.body(flow, graph) if callable(self.body) else self.body
        if not isinstance(text, str):
            raise TypeError(f"the body of section {self.name!r} is {kind_of(text)}; it must be a str")
        text = textwrap.dedent(text).strip()
        return f"{'#' * self.level} {self.title}\n\n{text}" if text and self.title else text


class PromptBuilder:
    """`sections` in order, from which a system prompt is built: `Flow(prompt_builder=...)`. A builder never
    changes; each method returns another one. `DEFAULT_BUILDER` is the engine's own prompt, to begin from:

        builder = DEFAULT_BUILDER.section("house", "Amounts are in euros.", title="House rules", before="examples")
    """

    def __init__(self, sections: Iterable[Section] = ()):
        checked = Arguments("PromptBuilder")
        self.sections: Tuple[Section, ...] = tuple(checked.listed("sections", sections, "sections"))
        for i, section in enumerate(self.sections):
            if not isinstance(section, Section):
                raise checked.wrong(f"sections[{i}]", section, "it must be a Section", TypeError)

    @property
    def names(self) -> List[str]:
        """Of the sections, in order."""
        return [s.name for s in self.sections]

    def _index(self, name: str) -> int:
        if name not in self.names:
            raise KeyError(f"no section is named {name!r}; there are {', '.join(self.names) or 'none'}")
        return self.names.index(name)

    def section(self, name: str, body: Body = "", *, title: Optional[str] = None, level: int = 2,
                before: Optional[str] = None, after: Optional[str] = None) -> "PromptBuilder":
        """With the section `name`, as `Section` has it: before or after the one named, else in the place of its
        namesake, else last. KeyError if the one named is not there."""
        if before is not None and after is not None:
            raise ValueError("a section stands before one section or after one, not both")
        made, anchor = Section(name, body, title, level), after if before is None else before
        if name in self.names and anchor in (None, name):
            return PromptBuilder(made if s.name == name else s for s in self.sections)
        if anchor is None:
            return PromptBuilder((*self.sections, made))
        rest = PromptBuilder(s for s in self.sections if s.name != name)
        i = rest._index(anchor) + (after is not None)
        return PromptBuilder((*rest.sections[:i], made, *rest.sections[i:]))

    def update(self, name: str, body: Body) -> "PromptBuilder":
        """With another `body` of the section `name`. KeyError if it is not there."""
        i = self._index(name)
        made = dataclasses.replace(self.sections[i], body=body)
        return PromptBuilder((*self.sections[:i], made, *self.sections[i + 1:]))

    def remove(self, name: str) -> "PromptBuilder":
        """Without the section `name`. KeyError if it is not there."""
        i = self._index(name)
        return PromptBuilder((*self.sections[:i], *self.sections[i + 1:]))

    def build(self, flow: Any = None, graph: Any = None, **overrides: Body) -> str:
        """The prompt of an agent of `flow` whose graph is `graph`: the sections that have text, with a blank
        line between. `overrides` are bodies by name, for this time."""
        builder = self
        for name, body in overrides.items():
            builder = builder.update(name, body)
        texts = [s.render(flow, graph) for s in builder.sections]
        return "\n\n".join(t for t in texts if t) + "\n"

    def __repr__(self) -> str:
        return f"PromptBuilder({', '.join(self.names)})"


def _of_engine(number: int) -> Body:
    def body(flow: Any, graph: Any) -> str:
        drive = getattr(graph, "_drive", None)
        return _engine.prompt_section(number) if drive is None else drive.run.prompt_section(number, graph.depth)

    return body


#: The engine's own prompt. "tools" and "models" have text in a run that has such; "session" tells of sub-agents
#: those that may launch some. The task, its inputs, the output schema and the turns left are in the first
#: message of the user's, not here.
DEFAULT_BUILDER = PromptBuilder(Section(name, _of_engine(i)) for i, name in enumerate(
    ("role", "format", "session", "examples", "tools", "models")))

#: The default prompt without what a flow adds.
SYSTEM_PROMPT = DEFAULT_BUILDER.build()
