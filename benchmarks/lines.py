"""Do sampled lines agree with what the lines really take, and with py-spy? What does the sampling cost?

Run it from anywhere, with nothing else running, after ``pip install py-spy``; 4 minutes::

    python benchmarks/lines.py

Each round trains a program whose lines time themselves: as it is, with ``GpuProfiler``, which looks 10 times a second,
and under ``py-spy record`` with as many looks and with its own 100.
"""

import json
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from paired import at_least, bootstrap, command_line, wide_console, write_json
from rich.table import Table

PROGRAM = Path(__file__).with_name("lines_program.py")
TOOLS = ("bare", "gpuprof", "py-spy 10", "py-spy 100")
TOP = 10
_FRAME = re.compile(rf"{re.escape(PROGRAM.name)}:(\d+)\)")


def run(tool: str, steps: int) -> dict[str, object]:
    """Truth, what the tool found, and the step time.

    Raises:
        RuntimeError: The program failed, or py-spy may not look at it.
    """
    with tempfile.TemporaryDirectory() as folder:
        stacks = Path(folder) / "stacks.txt"
        command = [sys.executable, str(PROGRAM), "gpuprof" if tool == "gpuprof" else "bare", str(steps)]
        if tool.startswith("py-spy"):
            spy = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or "py-spy"
            command = [spy, "record", "-r", tool.rpartition(" ")[2], "-f", "raw", "-o", str(stacks), "--", *command]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        line = next((text for text in done.stdout.splitlines() if text.startswith("RESULT ")), None)
        if line is None:
            raise RuntimeError(f"{tool}: {done.stderr[-500:]}")
        result: dict[str, object] = json.loads(line.removeprefix("RESULT "))
        if tool.startswith("py-spy"):
            result["found"] = shares(stacks.read_text())
        return result


def shares(stacks: str) -> dict[str, float]:
    """Share of the looks during the steps at each line of the program."""
    found: Counter[str] = Counter()
    looks = 0
    for row in stacks.splitlines():
        frames, _, count = row.rpartition(" ")
        if "advance (" not in frames:  # of the loop: the whole step
            continue
        looks += int(count)
        if lines := _FRAME.findall(frames):
            found[lines[-1]] += int(count)
    return {line: count / looks for line, count in found.items()}


def judged(result: Mapping[str, object]) -> tuple[int, float]:
    """How many of the ten largest lines are among the ten that were found, and half the sum of all differences."""
    truth, found = result["truth"], result["found"]
    assert isinstance(truth, dict)
    assert isinstance(found, dict)

    def top(of: Mapping[str, float]) -> set[str]:
        return set(sorted(of, key=lambda line: -of[line])[:TOP])

    off = sum(abs(share - found.get(line, 0.0)) for line, share in truth.items()) / 2
    return len(top(truth) & top(found)), off


def main() -> int:
    parser = command_line("lines", __doc__, seed="of the order")
    parser.add_argument("--rounds", type=at_least(1), default=7)
    parser.add_argument("--steps", type=at_least(100), default=700)
    options = parser.parse_args()
    order = random.Random(options.seed)
    rounds: list[dict[str, dict[str, object]]] = []
    for _ in range(options.rounds):
        rounds.append({tool: run(tool, options.steps) for tool in order.sample(TOOLS, len(TOOLS))})
    rng = np.random.default_rng(options.seed)
    table = Table("", "of the ten largest lines", "shares off by", "added to the step")
    rows = {}
    for tool in TOOLS[1:]:
        both = [judged(one[tool]) for one in rounds]
        added = bootstrap([_ratio(one[tool], one["bare"]) - 1 for one in rounds], rng)
        top, off = statistics.median(one[0] for one in both), statistics.median(one[1] for one in both)
        rows[tool] = {"top_ten": top, "off": off, "added": added}
        interval = f"{added.median:+.2%} ({added.low:+.2%} to {added.high:+.2%})"
        table.add_row(tool, f"{top:g}", f"{off:.1%}", interval)
    wide_console().print(table)
    write_json(options.json, "lines", rounds=options.rounds, steps=options.steps, tools=rows)
    return 0


def _ratio(result: Mapping[str, object], bare: Mapping[str, object]) -> float:
    return float(str(result["step_s"])) / float(str(bare["step_s"]))


if __name__ == "__main__":
    sys.exit(main())
