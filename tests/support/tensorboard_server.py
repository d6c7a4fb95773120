"""A started TensorBoard."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PATIENCE_S = 180
"""For what comes within seconds on a machine that does nothing else."""


@contextlib.contextmanager
def served(logdir: Path, log: Path) -> Iterator[str]:
    """TensorBoard over a folder; yields its address."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--port", "0", "--host", "127.0.0.1"]
    with log.open("w") as out:
        process = subprocess.Popen([*command, "--load_fast", "false"], stdout=out, stderr=subprocess.STDOUT)
    try:
        address = ""
        deadline = time.monotonic() + PATIENCE_S
        while not address:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
            address = next((w for w in log.read_text().split() if w.startswith("http://127.0.0.1:")), "")
        yield address.rstrip("/")
    finally:
        process.terminate()
        process.wait(30)
