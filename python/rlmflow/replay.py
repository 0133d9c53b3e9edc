"""What a replay has found."""
from __future__ import annotations

import dataclasses
from typing import Optional

__all__ = ["ReplayReport"]


@dataclasses.dataclass(frozen=True)
class ReplayReport:
    """`same` is true when every step was as recorded. Otherwise `diverged` says that the run went another way,
    at `agent_id`, `turn` and `cell` (0: between cells): `what` differs, as `recorded` and as `replayed`; or
    `outputs_differ` cells printed something else, the first of them `first_output_cell` of
    `first_output_agent_id`. `reason`: how the recorded run ended, "diverged" or "end of the recording". It went
    through so many `nodes`, `calls` and cells: `cells_run`, and `cells_not_run` whose effects may reach
    outside."""

    reason: str
    nodes: int
    calls: int
    cells_run: int
    cells_not_run: int
    outputs_differ: int
    first_output_agent_id: Optional[str]
    first_output_cell: int
    diverged: bool
    agent_id: Optional[str]
    turn: int
    cell: int
    what: Optional[str]
    recorded: str
    replayed: str

    @property
    def same(self) -> bool:
        """The replay went as the run did, and every cell printed the same."""
        return not self.diverged and not self.outputs_differ
