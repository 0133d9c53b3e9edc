"""From `open` on: the agent's namespace, and cell after cell."""
import builtins
import os
import sys
from _json import encode_basestring_ascii as quote

from .errors import AGENT_CLASSES
from .frames import READY
from .inputs import Inputs
from .api import Api, is_name
from .cells import Cells
from .file_tools import FILE_TOOLS
from .source_tools import define_tool


def open_session(session):
    """Makes the namespace of the agent that the host's `open` describes; its cells."""
    message = session.opened
    session.output.set_limit(message.get("limits", {}).get("output_bytes", 1 << 20))
    api = Api(session)
    cells = Cells(session, api)
    namespace = cells.namespace
    for kind in AGENT_CLASSES:
        namespace[kind.__name__] = kind
    if message.get("file_tools"):
        for tool in FILE_TOOLS:
            namespace[tool.__name__] = tool
    namespace["ENV"] = dict(message.get("env") or {})
    for spec in message.get("tools") or ():
        name, source = spec["name"], spec.get("source")
        if source is None:
            namespace[name] = api.tool(spec)
        elif source:
            namespace[name] = define_tool(cells, name, source)
    namespace.update(session.place.tools)
    for function in api.functions:
        cells.names.bind(function.__name__, function)
    bind_inputs(cells.names, message["inputs"], set(namespace))
    cells.bound = set(namespace)
    session.last_id = message.get("last_call", 0)
    return cells


def bind_inputs(names, inputs, taken):
    names.bind("INPUTS", Inputs(inputs))
    for name, value in inputs.items():
        if is_name(name) and not (hasattr(builtins, name) or name in taken or name == "INPUTS"):
            names.bind(name, value, is_input=True)


def ready_message(session):
    why = session.values.why
    mapped = '"mapped":true' if why is None else '"mapped":false,"why":%s' % quote(why)
    return ('{"python":"%d.%d.%d","implementation":%s,"executable":%s,"pid":%d,%s}' % (
        *sys.version_info[:3], quote(sys.implementation.name), quote(sys.executable or ""),
        os.getpid(), mapped)).encode()


def run_cells(session, cells):
    """Until the host closes the session."""
    session.channel.send_frame(READY, ready_message(session))
    while True:
        while session.starts:
            start = session.starts.popleft()
            if "recovered" in start:
                cells.namespace["RECOVERED"] = start["recovered"]
            session.begin_cell(start["cell"])
            cells.run(start["cell"], start["code"])
            del start
        session.pump(True)
