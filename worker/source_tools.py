"""Tools that came as source: functions of the session's own, that call nobody."""
from .reports import describe_exception


def define_tool(cells, name, source):
    """The function of this name that the source defines; where that fails, one that says so when it is called."""
    filename = "<tool %s>" % name
    cells.add_source(filename, source)
    namespace = {"__name__": "__main__"}
    try:
        exec(compile(source, filename, "exec", 0, True), namespace)
        return namespace[name]
    except (Exception, SystemExit) as e:
        return unusable_tool(name, describe_exception(e))


def unusable_tool(name, why):
    def call(*args, **kwargs):
        raise RuntimeError("the tool %s cannot be used in this session: %s" % (name, why))

    call.__name__ = call.__qualname__ = name
    return call
