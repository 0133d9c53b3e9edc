"""Preparing modules of the standard library for the session when the agent's code imports them."""
import sys


class Imports:
    """Tells when a module has been imported, so that it is prepared for the session only then."""

    def __init__(self):
        self.actions = {}
        sys.meta_path.insert(0, self)

    def when(self, name, action):
        """Calls `action(module)` once: at once if there is such a module, else when there is."""
        if name in sys.modules:
            action(sys.modules[name])
        else:
            self.actions.setdefault(name, []).append(action)

    def find_spec(self, name, path=None, target=None):
        """As the other finders say; of a module that somebody waits for, the loader is watched."""
        if name not in self.actions:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None:
                self.watch(spec.loader, name)
                return spec
        return None

    def watch(self, loader, name):
        """A module that was looked for and not imported, or that failed, is waited for on."""
        def exec_module(module):
            del loader.exec_module
            loader.exec_module(module)
            for action in self.actions.pop(name, ()):
                action(module)

        loader.exec_module = exec_module
