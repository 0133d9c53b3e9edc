"""How an interrupt of the host becomes an exception in the agent's code, and nowhere else."""
import _signal

from .agent_code import AGENT_BELOW

SIGNAL = _signal.SIGRTMIN + 7 if hasattr(_signal, "SIGRTMIN") else _signal.SIGUSR2


def install_signals(session):
    """The handlers raise in the agent's code only: they walk up from where the signal struck."""

    def agent_is_at_work(frame):
        while frame is not None and frame.f_globals is not globals():
            frame = frame.f_back
        return frame is not None and frame.f_code in AGENT_BELOW

    def on_interrupt(number, frame):
        if session.interrupt is not None and session.in_cell and agent_is_at_work(frame):
            session.raise_interrupt()

    def on_sigint(number, frame):
        if session.forked or session.in_cell and agent_is_at_work(frame):
            raise KeyboardInterrupt

    _signal.signal(SIGNAL, on_interrupt)
    _signal.signal(_signal.SIGINT, on_sigint)
