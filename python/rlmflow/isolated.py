"""Runtimes that keep agents away from this machine: a sandbox, containers, rented sandboxes.

This version of rlmflow takes and checks what they are given, and cannot open their sessions yet: a run with
one raises NotImplementedError before its model is asked anything."""
from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, Mapping, Optional, Union

from ._arguments import Arguments, Path
from .runtimes import Runtime
from .tools import Tool

__all__ = ["DaytonaRuntime", "DockerRuntime", "E2BRuntime", "ModalRuntime", "SandboxRuntime"]

Size = Union[str, int]


class _Isolated(Runtime):
    """One whose sessions this version cannot open."""

    def _check_can_open(self) -> None:
        raise NotImplementedError(f"this version of rlmflow cannot open sessions of {self._name()} yet; use "
                                  "SubprocessRuntime or LocalRuntime for code that you would run yourself")

    def _name(self) -> str:
        """The name of this package's class, also where it is one of the user's that derives from it."""
        return next(c.__name__ for c in type(self).__mro__ if c.__module__ == __name__)

    def _engine_runtime(self, tools: Iterable[Tool] = ()) -> Any:
        self._check_can_open()


class SandboxRuntime(_Isolated):
    """Sessions in a sandbox of Linux: no daemon, no root, no network. This version cannot open them yet.

    `python`: the interpreter, "python3" of PATH unless given. `working_directory`: of the sessions.
    `env`: variables that they get beside PATH, HOME, LANG and TZ. `mounts`: paths of this machine to absolute
    paths in the session, writable unless they end in ":ro". `network`: whether there is one. `memory` and
    `disk`: at most, as "512m" or bytes; `pids`: processes and threads at once. `exec_timeout`: seconds of a
    cell."""

    def __init__(self, *, working_directory: Optional[Path] = None, python: Optional[str] = None,
                 env: Optional[Dict[str, str]] = None, mounts: "Optional[Mapping[Path, str]]" = None,
                 network: bool = False, memory: Size = "1g", pids: int = 64, disk: Size = "256m",
                 exec_timeout: Optional[float] = None):
        super().__init__(working_directory=working_directory, exec_timeout=exec_timeout)
        checked = Arguments(type(self).__name__)
        self.python, self.env = checked.text("python", python), checked.env("env", env)
        self.mounts = checked.mounts(mounts)
        if not isinstance(network, bool):
            raise checked.wrong("network", network, "it must be True or False", TypeError)
        self.network = network
        self.memory, self.disk = checked.size("memory", memory), checked.size("disk", disk)
        self.pids = checked.number("pids", pids, "processes and threads at once")


class DockerRuntime(_Isolated):
    """A fresh container per session, with Docker or Podman. This version cannot open them yet.

    `image` needs a python3 and nothing of ours. `network`: "none" (when None too), "bridge", "host" or a
    network's name. `cpus`: processors, 0.5 is half of one. `memory`: at most, as "512m" or bytes. `user`:
    "UID", "UID:GID" or names of the image. `mounts`: paths of this machine, which must exist, to absolute
    paths in the container, writable unless they end in ":ro"; relative ones are of the directory in which the
    runtime is made. `extra_args`: more arguments of `docker run`, a str each. `env`: variables. `workdir`:
    directory in the container. `working_directory`: a directory of this machine that is mounted at `workdir`,
    "/workspace" unless given. `docker_bin`: the program. `repl_timeout`: seconds in which a session must be
    open; `exec_timeout`: of a cell.

    TypeError, ValueError: an argument is wrong; FileNotFoundError: nothing is where a mount should come
    from."""

    def __init__(self, image: str, *, network: Optional[str] = None, cpus: Optional[float] = None,
                 memory: Optional[Size] = None, user: "Optional[str | int]" = None,
                 mounts: "Optional[Mapping[Path, str]]" = None, extra_args: Optional[List[str]] = None,
                 env: Optional[Dict[str, str]] = None, workdir: Optional[str] = None,
                 working_directory: Optional[Path] = None, docker_bin: str = "docker",
                 repl_timeout: Optional[float] = None, exec_timeout: Optional[float] = None):
        super().__init__(working_directory=working_directory, exec_timeout=exec_timeout)
        checked = Arguments(type(self).__name__)
        self.image = checked.text("image", image, False)
        self.docker_bin = checked.text("docker_bin", docker_bin, False)
        if image.startswith("-") or image != image.strip():
            raise checked.wrong("image", image, "it is no name of an image")
        self.network = checked.text("network", network) or "none"
        self.cpus = checked.number("cpus", cpus, "processors, 0.5 is half of one")
        self.memory = checked.size("memory", memory)
        self.user = checked.text("user", str(user) if type(user) is int else user)
        if self.user is not None and not re.fullmatch(r"[\w.-]+(:[\w.-]+)?", self.user):
            raise checked.wrong("user", user, 'it must be "UID", "UID:GID" or names of the image')
        self.mounts, self.extra_args = checked.mounts(mounts), checked.texts("extra_args", extra_args) or []
        self.env, self.workdir = checked.env("env", env), checked.far_path("workdir", workdir)
        if self.working_directory is not None:
            self.workdir = self.workdir or "/workspace"
            self.mounts = {**checked.mounts({self.working_directory: self.workdir}), **self.mounts}
        self.repl_timeout = checked.number("repl_timeout", repl_timeout, "seconds")


class ModalRuntime(_Isolated):
    """A remote container of Modal per session. This version cannot open them yet.

    `app_name`: the app, made when there is none. `remote_workdir`: the working directory there.
    `image`: an image of the modal package; None: one with
    Python alone. `timeout`: seconds that a container lives at most. `repl_timeout`: seconds in which a
    session must be open; `exec_timeout`: seconds of a cell. `container_kwargs` go to modal as they are."""

    def __init__(self, app_name: str = "rlmflow", *, remote_workdir: str = "/workspace", image: Any = None,
                 timeout: float = 3600, repl_timeout: float = 30, exec_timeout: Optional[float] = None,
                 **container_kwargs: Any):
        super().__init__(exec_timeout=exec_timeout)
        checked = Arguments(type(self).__name__)
        self.app_name, self.image = checked.text("app_name", app_name, False), image
        self.remote_workdir = checked.far_path("remote_workdir", remote_workdir)
        self.timeout = checked.number("timeout", timeout, "seconds")
        self.repl_timeout = checked.number("repl_timeout", repl_timeout, "seconds")
        self.container_kwargs = container_kwargs


class E2BRuntime(_Isolated):
    """A remote sandbox of E2B per session. This version cannot open them yet.

    `template`: of the sandbox, None: theirs. `remote_workdir`: the working directory there. `timeout`: seconds
    that it lives at most. `envs`: variables. `repl_timeout`: seconds in which a session must be open,
    `exec_timeout`: of a cell. `setup_commands` are run first. `sandbox_kwargs` go to E2B as they are."""

    def __init__(self, *, template: Optional[str] = None, timeout: float = 300,
                 envs: Optional[Dict[str, str]] = None, remote_workdir: str = "/workspace",
                 repl_timeout: float = 30, setup_commands: Optional[List[str]] = None,
                 sandbox_kwargs: Optional[Dict[str, Any]] = None,
                 exec_timeout: Optional[float] = None):
        super().__init__(exec_timeout=exec_timeout)
        checked = Arguments(type(self).__name__)
        self.template, self.envs = checked.text("template", template), checked.env("envs", envs)
        self.timeout = checked.number("timeout", timeout, "seconds")
        self.remote_workdir = checked.far_path("remote_workdir", remote_workdir)
        self.repl_timeout = checked.number("repl_timeout", repl_timeout, "seconds")
        self.setup_commands = checked.texts("setup_commands", setup_commands) or []
        self.sandbox_kwargs = dict(checked.mapping("sandbox_kwargs", sandbox_kwargs))


class DaytonaRuntime(_Isolated):
    """A remote sandbox of Daytona per session. This version cannot open them yet.

    `create_params`: of the daytona package, None: theirs. `remote_workdir`: the working directory there.
    `create_timeout`: seconds to make a sandbox. `env`: variables. `repl_timeout`: seconds in which a session
    must be open, `exec_timeout`: of a cell. `setup_commands` are run first. `daytona`: a client of the daytona
    package; None: one is made."""

    def __init__(self, *, create_params: Any = None, create_timeout: float = 60,
                 env: Optional[Dict[str, str]] = None, remote_workdir: str = "/workspace",
                 repl_timeout: float = 30, setup_commands: Optional[List[str]] = None, daytona: Any = None,
                 exec_timeout: Optional[float] = None):
        super().__init__(exec_timeout=exec_timeout)
        checked = Arguments(type(self).__name__)
        self.create_params, self.daytona, self.env = create_params, daytona, checked.env("env", env)
        self.create_timeout = checked.number("create_timeout", create_timeout, "seconds")
        self.remote_workdir = checked.far_path("remote_workdir", remote_workdir)
        self.repl_timeout = checked.number("repl_timeout", repl_timeout, "seconds")
        self.setup_commands = checked.texts("setup_commands", setup_commands) or []
