"""Copies what a rank writes to an address such as ``s3://bucket/runs``, in the background.

Through fsspec, which comes with Lightning; it is imported only where an address is given.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from lightning_gpuprof.errors import ArgumentError, redacted

EVERY_S = 10.0
"""Between two copies; a summary is renewed every 5 s."""
MOST_RATIO = 0.05
"""Of the time, for which a copy may be under way while training goes on."""
MOST_BYTES_WHILE_RUNNING = 8 << 20
"""Of a file: a journal that grows is sent whole each time. Larger ones are sent at the end."""
_UNFINISHED = ".plain.json"
"""Traces that are compressed next."""
LAST_WAIT_S = 60.0
"""How long the end of a run waits for its files."""


def check_address(dirpath: str) -> None:
    """Refuse an address that nothing here can write to.

    Raises:
        ArgumentError: Its protocol is not known to fsspec, or needs a package that is not installed.
    """
    try:
        import_module("fsspec").get_filesystem_class(dirpath.split("://", 1)[0])
    except (ImportError, ValueError) as error:
        hint = f"{error}. A folder on this machine always works."
        raise ArgumentError("dirpath", dirpath, "be a folder, or an address that fsspec can write to", hint) from error


@dataclass(eq=False, repr=False)
class RemoteCopy:
    """Sends a rank's files, while it runs and at its end. Training never waits for it, only the end of a run does."""

    folder: Path
    """Of the run, on this machine."""
    address: str
    """Of the run's folder there, the same for all ranks."""
    rank: int
    """Its files are sent; of the first rank also those of the run."""
    on_failure: Callable[[str], None]
    """Told why files could not be sent; they are tried again."""
    _: KW_ONLY
    every_s: float = EVERY_S
    """Between two copies, at least."""

    def __post_init__(self) -> None:
        self.name = redacted(self.address)
        """The address without a user and password."""
        self._sent: dict[str, tuple[int, int]] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpuprof remote copy", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Send what is left, and nothing after it, while training goes on."""
        self._is_over.set()

    def finish(self, wait_s: float = LAST_WAIT_S) -> None:
        """Send what is left and wait for it, at most so long; what then is not sent stays on this machine."""
        self.stop()
        self._thread.join(wait_s)
        if self._thread.is_alive():
            self._report(f"not all files were copied within {wait_s:.0f} s: they are in {self.folder}")

    def _report(self, failure: str) -> None:
        self.on_failure(redacted(failure, self.address))

    def _run(self) -> None:
        pause_s = self.every_s
        while not self._is_over.wait(pause_s):
            begin = time.monotonic()
            self._send(MOST_BYTES_WHILE_RUNNING)
            pause_s = max(self.every_s, (time.monotonic() - begin) / MOST_RATIO)
        self._send(None)

    def _send(self, most_bytes: int | None) -> None:
        try:
            there: Any = None
            for file in sorted(self.folder.iterdir()):
                found = file.stat()
                state = found.st_size, found.st_mtime_ns
                too_large = most_bytes is not None and found.st_size > most_bytes
                if too_large or self._sent.get(file.name) == state or not self._is_wanted(file.name):
                    continue
                if there is None:
                    there, path = import_module("fsspec.core").url_to_fs(self.address)
                    if path.startswith("/"):  # else its first part is a bucket, which has no folders to be made
                        there.makedirs(path, exist_ok=True)  # and would be made as well, of a name that was mistyped
                there.put_file(os.fspath(file), f"{path}/{file.name}")
                self._sent[file.name] = state
        except Exception as error:  # whatever a file system raises
            why = f"{type(error).__name__}: {error}"
            self._report(f"{self.name} cannot be written ({why}): the run is in {self.folder}")

    def _is_wanted(self, name: str) -> bool:
        if name.startswith(f"rank{self.rank}."):
            return not name.endswith(_UNFINISHED)
        return not self.rank and not name.startswith((".", "rank"))
