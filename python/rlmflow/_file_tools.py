"""FILE_TOOLS, which every session has: those of the worker, for the host."""
from __future__ import annotations

from typing import Any, Callable, List

from . import _worker
from .tools import BUILT_IN, tool

_functions: Any = _worker.FILE_TOOLS
FILE_TOOLS: List[Callable] = [tool(function) for function in _functions]
BUILT_IN += FILE_TOOLS
