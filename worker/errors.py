"""Exceptions and values that the agent's code sees."""


class CellEnded(BaseException):
    """The answer was accepted: the cell ends. Nothing needs to catch this."""


# Event loops hand on only KeyboardInterrupt and SystemExit at once; of any other BaseException in a
# task the cell would not hear while it waits for something else.
class CellInterrupted(KeyboardInterrupt):
    """The host ends the cell: a clock ran out or the run is stopped."""


class StopLoop(KeyboardInterrupt):
    """Leaves the event loop of a cell whose answer was accepted inside a task."""


class SessionOver(BaseException):
    """The host is gone or has closed the session, which is a part of its process: leaves the code."""


class InputNameError(NameError):
    """A name that belongs to an input or to the API was given a new value."""


class HostCallError(Exception):
    """A host call failed; `reason`, `message` and `agent_id` say how."""

    def __init__(self, message="", reason="", agent_id=""):
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.agent_id = agent_id


class ToolInterrupted(HostCallError):
    """A call was under way when the session was interrupted; it may have had its effect."""


class Failure(str):
    """Stands where a result would, for a child or prompt that failed: `[reason: message]`."""

    def __new__(cls, reason="", message="", agent_id=""):
        self = super().__new__(cls, "[%s: %s]" % (reason, message))
        self.reason = reason
        self.message = message
        self.agent_id = agent_id
        return self

    def __reduce__(self):
        return (Failure, (self.reason, self.message, self.agent_id))


AGENT_CLASSES = (
    CellEnded, CellInterrupted, InputNameError, HostCallError, ToolInterrupted, Failure)
for _class in AGENT_CLASSES:
    _class.__module__ = "__main__"


def make_error(error):
    """The exception for the error of a RESULT."""
    kind, message = error.get("type", ""), error.get("message", "")
    for known in (ValueError, TypeError, KeyError, FileNotFoundError, CellEnded):
        if known.__name__ == kind:
            return known(message)
    of_host = ToolInterrupted if kind == "ToolInterrupted" else HostCallError
    return of_host(message, error.get("reason") or "", error.get("agent_id") or "")
