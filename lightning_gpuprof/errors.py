"""Every error the profiler raises on purpose: what was wrong, with which value, and the way out."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from types import TracebackType
    from typing import Any

_MORE = "  GPUPROF_DEBUG=1 shows where in the program"
"""Which jsonargparse 4.53 says in 60 lines."""
_MAX_WRONG = 4
"""Wrong names of two lines each: ten lines at most."""
HIDDEN = "***"
"""Stands for what may be secret."""
_USER = re.compile(r"(?<=:/)(/?)(?:[^/\s:]+:\S*|[^/\s]*)@")
"""Of an address, with a password, which may hold slashes; a path has one of the two slashes before it."""
_QUERY_VALUE = re.compile(r"(?<=[?&])([\w.%-]+=)[^&\s'\"]+")


def redacted(text: str, address: str = "") -> str:
    """A text in which ``***`` stands for users, passwords and keys of addresses.

    Args:
        text: Such as ``ftp://me:secret@host/runs cannot be read``.
        address: Its user and password are hidden wherever the text has them as words, also decoded.

    Returns:
        Such as ``ftp://***@host/runs cannot be read``.
    """
    text = _QUERY_VALUE.sub(rf"\1{HIDDEN}", _USER.sub(rf"\1{HIDDEN}@", text))
    given = [word for found in _USER.finditer(address) for word in found[0].strip("/@").split(":", 1)]
    for secret in filter(None, [*given, *map(unquote, given)]):
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)
    return text


class GpuProfError(Exception):
    """Base of all errors raised on purpose by this package; what is secret in an address is hidden.

    Args:
        text: What was wrong, with which value, and the way out.
    """

    def __init__(self, text: str = "") -> None:
        super().__init__(redacted(text))


class ArgumentError(GpuProfError, ValueError):
    """An argument has a value that cannot work.

    Args:
        argument: Name of the argument as the user writes it, e.g. ``trace.active``.
        value: The value that was given.
        expected: What the argument must be, as a phrase that follows "must".
        hint: Optional way out, a full sentence.
    """

    def __init__(self, argument: str, value: object, expected: str, hint: str = "") -> None:
        self.argument = argument
        self.value = value
        self.expected = expected
        self.hint = hint
        text = f"{argument} must {expected}, got {value!r}"
        super().__init__(f"{text}. {hint}" if hint else text)
        _shorten_for_command_lines(str(self), argument.rpartition(".")[2], value)


class UnknownArgumentError(GpuProfError, TypeError):
    """There is no such argument.

    Args:
        what: What was called.
        argument: The name that was given.
        known: The arguments that there are.
    """

    def __init__(self, what: str, argument: str, known: Iterable[str]) -> None:
        names = list(known)
        way_out = did_you_mean(argument, names) or f" It has: {', '.join(names)}."
        super().__init__(f"{what} has no argument {argument!r}.{way_out}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question with the closest names, to end an error with.

    Args:
        name: That was given.
        known: Names that there are.

    Returns:
        A space and ``Did you mean epoch or epochs?``, with two names at most; empty where none is close.
    """
    import difflib  # as below: every command imports this module, and few end with an error

    near = difflib.get_close_matches(name, known, n=2)
    return f" Did you mean {' or '.join(near)}?" if near else ""


class JournalError(GpuProfError):
    """A journal is missing, empty or was written by a newer version."""


class TraceError(GpuProfError):
    """A trace file cannot be read."""


class ReportError(GpuProfError):
    """A report cannot be read or made."""


class TrialError(GpuProfError):
    """``gpuprof try`` cannot try what it was asked to."""


class TrialOver(SystemExit):
    """No error: ends the program that trains once its trial is over; exit code 0, but in ranks that it spawned."""


class PatchError(GpuProfError):
    """A user's file cannot be read as code, or changed meanwhile."""


def note_unknown_arguments(what: str, known: Collection[str]) -> None:
    """Say which arguments of a class in the configuration files of this command do not exist.

    LightningCLI refuses them itself, in the middle of 70 lines, before the class is called. Called at the end of such a
    program, this is what is read first. The files are read once more.

    Args:
        what: Name of the class.
        known: The arguments that there are, and those of a group of options after its name: ``trace.active``.
    """
    for _, words in _wrong_arguments(what, known, checks={}):
        print(words, file=sys.stderr)


def answer_before_the_parser(
    what: str, known: Collection[str], checks: Mapping[str, Callable[..., object]], told: Callable[[], None]
) -> Callable[[], None]:
    """Let LightningCLI end with our lines alone where it refuses an argument of a class.

    What else it refuses, it says itself, as it does with ``GPUPROF_DEBUG=1`` and ``JSONARGPARSE_DEBUG``. The class may
    be imported before LightningCLI: a command with a configuration file is taken to use it.

    Args:
        what: As of :func:`note_unknown_arguments`.
        known: Likewise.
        checks: Called with one argument: the class, under an empty name, and its groups of options under theirs.
        told: Called when our lines were printed.

    Returns:
        Leaves the parser as it was.
    """
    if "jsonargparse" not in sys.modules and _configurations():
        with suppress(ImportError):
            import_module("jsonargparse")

    def wrong_in(message: str) -> list[str]:
        return [words for name, words in _wrong_arguments(what, known, checks) if name in message]

    return _before_the_parser(wrong_in, told)


def answer_for_class(module: str, name: str, known: Collection[str]) -> None:
    """Let LightningCLI end with our lines alone where it refuses a configuration for a class that does not exist.

    Args:
        module: Of the class.
        name: The name that was asked for.
        known: The names that there are.
    """

    def wrong_in(message: str) -> list[str]:
        if f"'{module}.{name}'" not in message:
            return []
        files = [path for path in _configurations() if name in _text_of(path)]
        words = f"gpuprof: {module} has no class {name!r}.{did_you_mean(name, known)}"
        return ["\n  in ".join([words, *files[:1]])]

    _before_the_parser(wrong_in, lambda: None)


def _before_the_parser(wrong_in: Callable[[str], list[str]], told: Callable[[], None]) -> Callable[[], None]:
    """Print what is wrong in the place of an error of jsonargparse. The result leaves the parser as it was."""
    parser = getattr(sys.modules.get("jsonargparse"), "ArgumentParser", None)
    before = getattr(parser, "error", None)
    if parser is None or before is None or os.environ.get("GPUPROF_DEBUG") == "1":
        return lambda: None

    def error(self: Any, message: str, *args: object, **kwargs: object) -> object:
        wrong: list[str] = []
        if getattr(self, "exit_on_error", False) and "JSONARGPARSE_DEBUG" not in os.environ:
            with suppress(Exception):  # whatever is in the files: then the parser's own error is the answer
                wrong += wrong_in(message)
        if wrong:
            print(*wrong[:_MAX_WRONG], _MORE, sep="\n", file=sys.stderr)
            told()
            sys.exit(2)
        return before(self, message, *args, **kwargs)

    def restore() -> None:
        if parser.error is error:
            parser.error = before

    parser.error = error
    return restore


def _configurations() -> list[str]:
    """The configuration files that this command names."""
    return [word.rpartition("=")[2] for word in sys.argv[1:] if word.endswith((".yaml", ".yml"))]


def _text_of(configuration: str) -> str:
    """Of a file as the command names it, empty if unreadable: jsonargparse reads each in the file's own folder."""
    from pathlib import Path

    here = Path.cwd()
    places = [*(folder / configuration for folder in (here, *here.parents)), here / Path(configuration).name]
    with suppress(OSError, ValueError):
        return next(filter(Path.is_file, places), places[0]).read_text(encoding="utf-8")
    return ""


def _wrong_arguments(
    what: str, known: Collection[str], checks: Mapping[str, Callable[..., object]]
) -> Iterator[tuple[str, str]]:
    """The name of each argument that does not exist or has a value that cannot work, and our lines about it."""
    yaml = sys.modules.get("yaml")
    if yaml is None or "jsonargparse" not in sys.modules:
        return
    groups = {name.partition(".")[0] for name in known if "." in name}
    for path in _configurations():
        with suppress(OSError, ValueError, yaml.YAMLError):
            for name, value in _arguments_in(yaml.safe_load(_text_of(path)), what, groups):
                if wrong := _wrong_argument(what, name, value, known, checks):
                    yield name.rpartition(".")[2], f"gpuprof: {wrong}\n  in {path}"


def _wrong_argument(
    what: str, name: str, value: object, known: Collection[str], checks: Mapping[str, Callable[..., object]]
) -> GpuProfError | None:
    group, _, option = name.rpartition(".")
    if name not in known:
        there = [one.rpartition(".")[2] for one in known if one.rpartition(".")[0] == group]
        return UnknownArgumentError(f"{what}.{group}" if group else what, option, there)
    if group in checks and not (name in checks and isinstance(value, dict)):
        try:
            checks[group](**{option: value})
        except GpuProfError as error:
            return error
    return None


def _arguments_in(read: object, what: str, groups: Collection[str]) -> Iterator[tuple[str, object]]:
    """Arguments that a configuration gives to a class, wherever it stands, and to its groups."""
    if isinstance(read, dict):
        given = read.get("init_args")
        if isinstance(given, dict) and str(read.get("class_path")).rpartition(".")[2] == what:
            for name, value in given.items():
                yield str(name), value
                if name in groups and isinstance(value, dict):
                    options = value.get("init_args") if "class_path" in value else value
                    inner = options.items() if isinstance(options, dict) else ()
                    yield from ((f"{name}.{option}", one) for option, one in inner)
    if isinstance(read, dict | list):
        for below in read.values() if isinstance(read, dict) else read:
            yield from _arguments_in(below, what, groups)


def _place(option: str, value: object) -> str:
    """File and line of the last configuration of this command that gives the profiler's option this value."""
    given = re.compile(rf"\b{re.escape(option)}\s*:[^:]*?(?<![\w.]){re.escape(str(value))}(?![\w.])", re.IGNORECASE)
    for path in reversed(_configurations()):
        text = _text_of(path)
        if found := given.search(text, text.find("lightning_gpuprof")):
            return f"{path}:{text[: found.start()].count(chr(10)) + 1}"
    return "the configuration of GpuProfiler"


def _shorten_for_command_lines(words: str, option: str, value: object) -> None:
    """Let an error in a configuration file end LightningCLI with our line in place of its 60 lines of stack.

    jsonargparse repeats the error of a value as part of its own, whose last line is not the cause. Nothing changes for
    a script, nor if the program ends by something else.
    """
    if os.environ.get("GPUPROF_DEBUG") == "1" or "jsonargparse" not in sys.modules:
        return
    import inspect

    frame = inspect.currentframe()
    while frame is not None and not str(frame.f_globals.get("__name__", "")).startswith("jsonargparse"):
        frame = frame.f_back
    if frame is None:
        return
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        import traceback

        said = "".join(traceback.format_exception_only(kind, error))
        if words not in said:
            before(kind, error, trace)
            return
        print(f"gpuprof: {words}", f"  in {_place(option, value)}", _MORE, sep="\n", file=sys.stderr)

    sys.excepthook = hook
