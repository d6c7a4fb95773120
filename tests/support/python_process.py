"""Programs that end by themselves, in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path


def run_python(
    *arguments: str | Path, code: int | None = 0, cwd: Path | None = None, timeout_s: float = 900, **environment: str
) -> subprocess.CompletedProcess[str]:
    """What Python with these arguments says, with more in its environment; None is any exit code.

    A port that a test before found for its ranks is not handed on: two fits of a program would want the same.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "MASTER_PORT"}
    command, env = [sys.executable, *arguments], {**inherited, **environment}
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=cwd, env=env)
    assert code in (None, done.returncode), done.stderr[-3000:]
    return done
