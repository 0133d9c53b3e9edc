"""Agents that write Python, with sub-agents; the engine is in C.

    flow = rlmflow.Flow(rlmflow.OpenAIClient(model="..."), max_budget=200_000)
    answer = flow.run("...", inputs={"corpus": text}, journal="run.rlm")
"""
import atexit as _atexit
import typing as _typing

from . import _engine
from .clients import *  # noqa: F401,F403
from .events import *  # noqa: F401,F403
from .flow import *  # noqa: F401,F403
from .graph import *  # noqa: F401,F403
from .isolated import *  # noqa: F401,F403
from .local import *  # noqa: F401,F403
from .nodes import *  # noqa: F401,F403
from .parallel import *  # noqa: F401,F403
from .prompts import *  # noqa: F401,F403
from .replay import *  # noqa: F401,F403
from .runtimes import *  # noqa: F401,F403
from .schema import *  # noqa: F401,F403
from .sessions import *  # noqa: F401,F403
from .tools import *  # noqa: F401,F403
from .watching import *  # noqa: F401,F403

__version__ = _engine.version()
_atexit.register(_engine.stop)

if _typing.TYPE_CHECKING:
    from ._file_tools import FILE_TOOLS as FILE_TOOLS
else:  # type checkers are to know which names there are

    def __getattr__(name: str) -> _typing.Any:
        if name == "FILE_TOOLS":  # importing the worker takes longer than all else
            from ._file_tools import FILE_TOOLS

            return FILE_TOOLS
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
