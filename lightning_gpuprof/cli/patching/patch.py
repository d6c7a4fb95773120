"""Builds a unified diff from changes, and lists what has to be put in by hand."""

import difflib
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from lightning_gpuprof.cli.patching.draft import Draft
from lightning_gpuprof.cli.patching.pieces import NotPlacedError, pieces
from lightning_gpuprof.errors import PatchError
from lightning_gpuprof.model.change import Change

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_CODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_NO_NEWLINE = "\\ No newline at end of file\n"


class PatchedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file that changes."""

    path: Path
    before: bytes
    after: bytes

    @property
    def text(self) -> str:
        """The new text."""
        return _decoded(self.after)

    @property
    def diff(self) -> str:
        """As of ``git diff``, which ``git apply`` and ``patch -p1`` take."""
        path = Path(os.path.relpath(self.path)).as_posix()
        before, after = (_LINE.findall(_decoded(content)) for content in (self.before, self.after))
        lines = difflib.unified_diff(before, after, f"a/{path}", f"b/{path}")
        return "".join(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}" for line in lines)


class Unplaced(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a change for which there is no place, or more than one."""

    change: Change
    why: str
    """One line."""
    snippet: tuple[str, ...]
    """Lines to put in by hand; what begins with ``- `` is to be removed."""

    @property
    def lines(self) -> tuple[str, ...]:
        """Where to put them, as far as the advice says it, why nobody else can, and the lines."""
        where = f", {self.change.place}" if self.change.place else ""
        return (f"by hand{where}: {self.why}", *(f"  {line}" for line in self.snippet))


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """What changes in which files."""

    files: tuple[PatchedFile, ...] = ()
    unplaced: tuple[Unplaced, ...] = ()

    @property
    def diff(self) -> str:
        """Of all files; empty if nothing changes."""
        return "".join(file.diff for file in self.files)


def patch(changes: Sequence[Change], *, sources: Sequence[Path], config: Path | None = None) -> Patch:
    """Put changes where they belong in the user's files. Nothing is written.

    Args:
        changes: The most valuable first: where two set the same argument, the first counts.
        sources: The Python files of the program: the script, and the modules of the user's that it imports.
        config: The YAML, if LightningCLI reads one.

    Returns:
        The files that differ, the YAML last, and the pieces that have no place or several, in the order of ``changes``.

    Raises:
        PatchError: A file is no Python or no YAML, or libcst is not installed.
        OSError: A file cannot be read.
    """
    contents = {path: path.read_bytes() for path in dict.fromkeys(sources)}
    text = config.read_bytes() if config is not None else b""
    try:
        draft = Draft(contents, config, text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise PatchError(f"{config} is not UTF-8: nothing was changed") from error
    unplaced: list[Unplaced] = []
    for change in changes:
        for piece in pieces(change):
            try:
                draft.place(piece, change)
            except NotPlacedError as why:
                unplaced.append(Unplaced(change=change, why=str(why), snippet=piece.snippet))
    files = [PatchedFile(path=path, before=contents[path], after=after) for path, after in draft.contents.items()]
    if draft.config is not None:
        files.append(PatchedFile(path=draft.config.path, before=text, after=draft.config.text.encode("utf-8")))
    return Patch(files=tuple(file for file in files if file.before != file.after), unplaced=tuple(unplaced))


def apply(patched: Patch) -> None:
    """Write the files of a patch, each in one step; links stay links.

    Raises:
        PatchError: A file has changed since; none is written.
        OSError: A file cannot be written; those before it are.
    """
    for file in patched.files:
        if not file.path.is_file() or file.path.read_bytes() != file.before:
            raise PatchError(f"{file.path} has changed since the patch was made: nothing was written, make it again")
    for file in patched.files:
        _write(file.path.resolve(), file.after)


def _write(path: Path, content: bytes) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(name).chmod(path.stat().st_mode & 0o7777)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _decoded(content: bytes) -> str:
    """The text, in the encoding that its first lines name; line ends stay."""
    first_lines = content.split(b"\n", 2)[:2]
    named = next((match[1].decode("ascii") for line in first_lines if (match := _CODING.match(line))), "utf-8")
    try:
        return content.decode(named)
    except (LookupError, UnicodeDecodeError):
        return content.decode("utf-8", "replace")
