"""A terminal for tests: what somebody sees in the end of what a program wrote."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence

_TOKENS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[^\x1b]", re.DOTALL)


def run_in_terminal(
    command: Sequence[str],
    *,
    columns: int = 100,
    environ: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    seen: Callable[[str], None] = lambda text: None,
    timeout_s: float = 240.0,
) -> tuple[int, str]:
    """Run a program with its three streams on a terminal.

    Args:
        command: Its words.
        columns: Of the terminal.
        environ: Put over this process's environment.
        cwd: Its folder.
        seen: Called with everything that was written up to then, whenever there is more.
        timeout_s: After so long the program is killed.

    Returns:
        Exit code, and everything that was written.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    without = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}  # pytest-xdist's
    environment = {**without, "TERM": "xterm-256color", **(environ or {})}
    program = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env=environment, close_fds=True
    )
    os.close(theirs)
    written = bytearray()
    until = time.monotonic() + timeout_s
    try:
        while time.monotonic() < until:
            try:
                more = os.read(ours, 1 << 16)
            except OSError:  # nobody has the other end open any more
                break
            if not more:
                break
            written += more
            seen(written.decode(errors="replace"))
    finally:
        if time.monotonic() >= until:
            program.kill()
        code = program.wait()
        os.close(ours)
    return code, written.decode(errors="replace")


def screen(written: str) -> list[str]:
    """The lines as they stand at the end, without colours; the terminal is as high as they need."""
    rows: list[list[str]] = [[]]
    row = column = 0
    for token in _TOKENS.findall(written):
        if token == "\n":
            row += 1
        elif token == "\r":
            column = 0
        elif token.startswith("\x1b"):
            count = int(re.match(r"\x1b\[(\d*)", token)[1] or 1)  # type: ignore[index]
            if token.endswith("A"):
                row = max(0, row - count)
            elif token.endswith("K"):
                rows[row] = [] if count == 2 else rows[row][:column]
        else:
            rows[row].extend(" " * (column + 1 - len(rows[row])))
            rows[row][column] = token
            column += 1
        rows.extend([] for _ in range(row + 1 - len(rows)))
    return ["".join(cells).rstrip() for cells in rows]
