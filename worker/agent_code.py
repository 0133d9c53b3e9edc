"""The marks of code that the agent's code is run by, or that belongs to it."""

# Code of this file that calls the agent's, or that may be left at any point: where one of these is
# the worker's innermost frame, an interrupt may be raised.
AGENT_BELOW = set()


def calls_agent(function):
    AGENT_BELOW.add(function.__code__)
    return function


def visible(function):
    """A function of the agent's: as if defined in `__main__`, and interrupts may strike in it."""
    function.__module__ = "__main__"
    function.__qualname__ = function.__name__
    return calls_agent(function)
