"""The limits of a flow, checked, as the engine takes them."""
from __future__ import annotations

from typing import Any, Dict, Optional

from ._arguments import MOST_INT64, Arguments

MOST_DOLLARS = 10**9


def limits_of(flow: Any, checked: Arguments) -> Dict[str, int]:
    """TypeError or ValueError, with the name, for one that is none. Those that are None are not among them; what is
    too small for the engine it says itself."""
    limits: Dict[str, Optional[int]] = {name: checked.whole(name, getattr(flow, name)) for name in (
        "max_depth", "max_iters", "child_max_iters", "max_messages", "max_output_length", "max_query_chars",
        "max_output_tokens", "workers", "max_live", "max_agents")}
    limits["max_budget"] = checked.whole("max_budget", flow.max_budget, 1, MOST_INT64, "tokens; None: not capped")
    limits["max_cost_nano"] = checked.units("max_cost", flow.max_cost, "US dollars; None: not capped", 10**9,
                                            MOST_DOLLARS)
    limits["max_time_ms"] = checked.milliseconds("max_time", flow.max_time, "seconds; None: not capped")
    limits["request_timeout_ms"] = checked.milliseconds("llm_request_timeout", flow.llm_request_timeout)
    timeout = flow.runtime.exec_timeout if flow.exec_timeout is None else flow.exec_timeout
    limits["exec_timeout_ms"] = checked.milliseconds("exec_timeout", timeout, "seconds of a cell")
    return {name: value for name, value in limits.items() if value is not None}
