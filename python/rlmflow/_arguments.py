"""Checks of what callers give: what is wrong is raised with the name of the argument, its value, and what to give
instead."""
from __future__ import annotations

import math
import operator
import os
import re
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Union

from .values import shown

Path = Union[str, "os.PathLike[str]"]

MOST_INT = 2**31 - 1
MOST_INT64 = 2**63 - 1
MOST_SECONDS = 10**9
_SIZES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class _Secret:
    """Stands for a value that belongs in no message."""

    def __repr__(self) -> str:
        return "..."


class Arguments:
    """Checks arguments of `owner`, and names them in what it raises. Each method returns the value as it is taken; one
    that is optional may be None."""

    def __init__(self, owner: str):
        self.owner = owner

    def wrong(self, name: str, value: Any, wanted: str, kind: Callable = ValueError) -> Exception:
        """What to raise."""
        return kind(f"{self.owner}: {name}={shown(value)}: {wanted}")

    # Texts.

    def string(self, name: str, value: Any, optional: bool = True) -> Any:
        """Any str."""
        if not isinstance(value, str) and not (value is None and optional):
            raise self.wrong(name, value, "it must be a str" + (" or None" if optional else ""), TypeError)
        return value

    def prose(self, name: str, value: Any, optional: bool = True, *, secret: bool = False, lone: bool = False) -> Any:
        """One that the engine takes as UTF-8 that ends at a NUL; `lone` surrogates may be allowed. What is `secret` is
        not shown."""
        text = self.string(name, value, optional) or ""
        told = _Secret() if secret else value
        if "\0" in text:
            raise self.wrong(name, told, f"it holds a NUL, at {text.index(chr(0))}: take it out")
        try:
            text.encode("utf-8", "surrogatepass" if lone else "strict")
        except UnicodeEncodeError as e:
            raise self.wrong(name, told, f"it holds a lone surrogate, at {e.start}, which UTF-8 cannot say: take it "
                             "out") from None
        return value

    def text(self, name: str, value: Any, optional: bool = True, *, secret: bool = False, lone: bool = False) -> Any:
        """The same, and not empty: a name."""
        if self.prose(name, value, optional, secret=secret, lone=lone) == "":
            raise self.wrong(name, value, "it is empty")
        return value

    def choice(self, name: str, value: Any, choices: Iterable[str]) -> str:
        """One of these."""
        choices = list(choices)
        if not isinstance(value, str) or value not in choices:
            kind = ValueError if isinstance(value, str) else TypeError
            raise kind(f"{self.owner}: {name}={shown(value)} is none of {', '.join(choices)}")
        return value

    def path(self, name: str, value: Any, optional: bool = True) -> Any:
        """A path on this machine, as a str."""
        if value is None and optional:
            return None
        try:
            path = os.fspath(value)
        except TypeError:
            path = None
        if not isinstance(path, str):
            raise self.wrong(name, value, "it must be a path, as a str or os.PathLike of str", TypeError)
        return self.text(name, path, False)

    def run(self, name: str, value: Any) -> str:
        """The path of a run that is there."""
        path = self.path(name, value, False)
        if not os.path.exists(path):
            raise FileNotFoundError(f"there is no run at {path}")
        return path

    def far_path(self, name: str, value: Any) -> Optional[str]:
        """A path on the far side."""
        path = self.text(name, value)
        if path is not None and not path.startswith("/"):
            raise self.wrong(name, value, "it must be an absolute path, for it is one of the far side")
        return path

    # Numbers.

    def whole(self, name: str, value: Any, least: int = -MOST_INT, most: int = MOST_INT,
              what: str = "") -> Optional[int]:
        """An int; `what` says of what."""
        if value is None:
            return None
        what = f": {what}" if what else ""
        try:
            if isinstance(value, bool):
                raise TypeError
            number = operator.index(value)
        except TypeError:
            raise self.wrong(name, value, f"it must be an int{what}", TypeError) from None
        if number < least:
            raise self.wrong(name, value, f"it must be {least} or more{what}")
        if number > most:
            raise self.wrong(name, value, f"it must be {most} or less{what}")
        return number

    def number(self, name: str, value: Any, what: str, may_be_zero: bool = False) -> Any:
        """Any number that is not negative."""
        if value is None:
            return None
        try:
            if isinstance(value, (bool, str, bytes, bytearray)):
                raise TypeError
            number = float(value)
        except OverflowError:
            number = math.inf
        except Exception:
            raise self.wrong(name, value, f"it must be a number: {what}", TypeError) from None
        if not math.isfinite(number):
            raise self.wrong(name, value, f"it must be a finite number: {what}")
        if number < 0 or number == 0 and not may_be_zero:
            raise self.wrong(name, value, f"it must be {'0 or more' if may_be_zero else 'more than 0'}: {what}")
        return value

    def units(self, name: str, value: Any, what: str, per_one: int, most: int = MOST_SECONDS,
              may_be_zero: bool = False) -> Optional[int]:
        """A number in smaller units, `per_one` of them for 1, as the engine counts: what is not 0 stays so."""
        if self.number(name, value, what, may_be_zero) is None:
            return None
        if value > most:
            raise self.wrong(name, value, f"it must be {most} or less: {what}")
        return max(round(float(value) * per_one), 1) if value else 0

    def milliseconds(self, name: str, value: Any, what: str = "seconds", most: int = MOST_SECONDS,
                     may_be_zero: bool = False) -> Optional[int]:
        """Of seconds."""
        return self.units(name, value, what, 1000, most, may_be_zero)

    def size(self, name: str, value: Any) -> Optional[int]:
        """Bytes of 512, "64k", "512m" or "1.5g"."""
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise self.wrong(name, value, 'it must be a size as a str ("512m") or bytes as an int', TypeError)
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([bkmg]?)", str(value).lower())
        if found is None or float(found[1]) <= 0:
            raise self.wrong(name, value, 'it is no size, as "512m", "64k" and "1.5g" or bytes are')
        return int(float(found[1]) * _SIZES[found[2]])

    # What holds several.

    def mapping(self, name: str, value: Any) -> Mapping:
        """A dict; None is an empty one."""
        if value is not None and not isinstance(value, Mapping):
            raise self.wrong(name, value, "it must be a dict", TypeError)
        return {} if value is None else value

    def listed(self, name: str, value: Any, of: str) -> list:
        """What an iterable gives; `of` says what for."""
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise self.wrong(name, value, f"it must be a list of {of}", TypeError)
        return list(value)

    def texts(self, name: str, value: Any) -> Optional[List[str]]:
        """A list of names."""
        if value is None:
            return None
        return [self.text(f"{name}[{i}]", v, False)
                for i, v in enumerate(self.listed(name, value, "str, one each"))]

    def env(self, name: str, value: Any) -> Dict[str, str]:
        """Variables of a process; their values are not shown."""
        made = {}
        for key, text in self.mapping(name, value).items():
            if not isinstance(key, str) or not isinstance(text, str):
                raise self.wrong(f"{name}[{shown(key)}]", text, "names and values of variables must be str", TypeError)
            if "=" in key:
                raise self.wrong(f"a name in {name}", key, f"{key!r} cannot be a variable")
            self.text(f"a name in {name}", key)
            made[key] = self.prose(f"{name}[{key!r}]", text, secret=True)
        return made

    def mounts(self, value: Any) -> Dict[str, str]:
        """Absolute sources to targets."""
        made: Dict[str, str] = {}
        for source, target in self.mapping("mounts", value).items():
            if not isinstance(source, (str, os.PathLike)) or not isinstance(target, str):
                raise self.wrong("mounts", value, "it maps paths here to paths in the session", TypeError)
            if not re.fullmatch("/[^:]*(:ro|:rw)?", target):
                raise self.wrong("mounts", value, f'{target!r} must be an absolute path; it may end in ":ro"')
            absolute = os.path.abspath(source)
            if not os.path.exists(absolute):
                named = "" if os.path.isabs(source) else f" ({os.fspath(source)!r} in the current directory)"
                raise FileNotFoundError(f"{self.owner}: there is nothing to mount at {absolute}{named}")
            made[absolute] = target
        return made

    def price(self, name: str, value: Any, unknown: tuple) -> tuple:
        """Of a million tokens; `unknown` if it is not said."""
        if value is None:
            return unknown
        what = "four numbers of 0 or more, US dollars for a million tokens: (input, cached input, cache write, output)"
        numbers = list(value) if isinstance(value, (tuple, list)) else []
        if len(numbers) != 4 or any(isinstance(n, bool) or not isinstance(n, (int, float)) for n in numbers):
            raise self.wrong(name, value, f"it must be {what}", TypeError)
        if value != unknown and not all(0 <= n < math.inf for n in numbers):
            raise self.wrong(name, value, f"it must be {what}")
        return tuple(float(n) for n in numbers)
