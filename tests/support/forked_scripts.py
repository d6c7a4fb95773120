"""Scripts in processes of their own, forked from one that has imported torch and Lightning, which takes it seconds."""

import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import os, sys, planted_runs
for script in map(str.strip, sys.stdin):
    if not os.fork():
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{script}.{name}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC), number)
        exec(compile(open(script).read(), script, "exec"), {"__name__": "__main__"})
        sys.exit()
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


class ForkedScripts:
    """Runs one script after the other; what goes wrong in one ends its own process only."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def run(self, folder: Path, text: str, *, code: int = 0) -> str:
        """What a script printed.

        Args:
            folder: Where the script and what it prints are kept.
            text: Of the script.
            code: With which it must exit.
        """
        script = folder / "script.py"
        script.write_text(text)
        assert self._process.stdin is not None
        print(script, file=self._process.stdin, flush=True)
        assert int(self._process.stdout.readline()) == code, Path(f"{script}.err").read_text()[-2000:]
        return Path(f"{script}.out").read_text()

    def close(self) -> None:
        """End the process from which they are forked."""
        self._process.communicate()
