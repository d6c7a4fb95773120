"""Runs the files of a pytest suite in processes that may crash or hang; gives the outcome of every test.

Each process has a copy of the tests of its own, since Lightning's tests look for files that others leave behind.
Outcomes are kept in a folder as they come, so that a run that was broken off goes on where it was.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = Path(__file__).resolve().parent / "lightning_suite_plugin"
COPIED = ("tests", "requirements", "pyproject.toml")
SUITE = "tests/tests_pytorch"
FILES_IN_A_PROCESS = 8
"""Importing torch and Lightning takes longer than most files."""
POLL_S = 0.2
START_S = 300.0
"""For what is no test, such as importing and collecting: longer is hung."""
GRACE_S = 5.0
LOG_CHARACTERS = 3000
NOT_ENDED = frozenset({"began", "warned"})
ENDED = frozenset({0, 1, 5})
"""pytest's exit codes after it has run what it found: passed, failed, nothing to run."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a test ended."""

    test: str
    outcome: str
    """``passed``, ``failed``, ``skipped``, ``crashed`` or ``hung``."""
    seconds: float
    why: str

    @property
    def bad(self) -> bool:
        """Neither passed nor skipped."""
        return self.outcome not in {"passed", "skipped"}


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Where the tests are, and how they are run."""

    checkout: Path
    python: Path
    processes: int
    timeout_s: float
    """A test that takes longer is hung."""

    def files(self, patterns: Sequence[str]) -> list[str]:
        """The test files that match, the largest first; relative to the checkout."""
        found = {path for pattern in patterns for path in (self.checkout / SUITE).glob(pattern) if path.is_file()}
        ordered = sorted(found, key=lambda path: (-path.stat().st_size, path))
        return [path.relative_to(self.checkout).as_posix() for path in ordered]

    def run(self, tests: Sequence[str], outcomes: Path, variables: Mapping[str, str]) -> None:
        """Run files, or tests by their ids, with these environment variables; outcomes are added to the folder."""
        outcomes.mkdir(parents=True, exist_ok=True)
        by_file: dict[str, list[str]] = {}
        for test in tests:
            by_file.setdefault(test.partition("::")[0], []).append(test)
        pending = [file for file in by_file if not _complete(outcomes, file)]
        shards = [pending[i : i + FILES_IN_A_PROCESS] for i in range(0, len(pending), FILES_IN_A_PROCESS)]
        with tempfile.TemporaryDirectory(prefix="suite-") as folder, ThreadPoolExecutor(self.processes) as pool:
            copies: SimpleQueue[Path] = SimpleQueue()
            for number in range(self.processes):
                copies.put(self._copy(Path(folder) / str(number)))

            def shard(files: Sequence[str]) -> None:
                copy = copies.get()
                try:
                    _Shard(self, copy, outcomes, variables).run(files, [t for file in files for t in by_file[file]])
                finally:
                    copies.put(copy)

            list(pool.map(shard, shards))

    def _copy(self, target: Path) -> Path:
        for name in COPIED:
            source = self.checkout / name
            if source.is_dir():
                shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.is_file():
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target / name)
        return target


@dataclass(frozen=True)
class _Shard:
    """Some files in one process after another, until all of their tests have ended."""

    suite: Suite
    copy: Path
    outcomes: Path
    variables: Mapping[str, str]

    def run(self, files: Sequence[str], tests: Sequence[str]) -> None:
        """Go on after each crash or hang with what is left."""
        while True:
            before = len(read(self.outcomes))
            code, hung = self._process(files, tests)
            under_way = _under_way(self.outcomes, files)
            for test in under_way:
                word = "hung" if hung else "crashed"
                _add(self.outcomes, test, word, f"{word}: exit code {code}; {self._log_end()}")
            if code in ENDED and not under_way:
                break
            if not under_way and len(read(self.outcomes)) == before:
                for file in files:
                    _add(self.outcomes, file, "crashed", f"exit code {code}; {self._log_end()}")
                break
        for file in files:
            (self.outcomes / f"{_name(file)}.complete").touch()

    def _process(self, files: Sequence[str], tests: Sequence[str]) -> tuple[int, bool]:
        """One process; its exit code, and whether it was ended because nothing happened."""
        with tempfile.TemporaryDirectory(prefix="s-") as scratch, self._log().open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                [
                    *(str(self.suite.python), "-m", "pytest", "-q", "--tb=short", "--color=no"),
                    *("-p", "outcomes_of_tests", "-p", "no:cacheprovider", "--continue-on-collection-errors"),
                    *(f"--basetemp={scratch}/t", *(str(self.copy / test) for test in tests)),
                ],
                cwd=self.copy / SUITE,
                env=self._environment(scratch),
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            began, hung = time.time(), False
            while process.poll() is None and not hung:
                time.sleep(POLL_S)
                late_s = time.time() - max(began, self._last_outcome(files))
                if late_s > self.suite.timeout_s:
                    hung = late_s > START_S or bool(_under_way(self.outcomes, files))
            if hung:
                _end(process, signal.SIGABRT)  # pytest's fault handler prints where each thread is
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=GRACE_S)
            _end(process, signal.SIGKILL)  # whatever it has started and left
            return process.wait(), hung

    def _environment(self, scratch: str) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith("GPUPROF")}
        paths = [str(ROOT), str(PLUGIN), str(self.copy / "tests")]
        return {
            **own,
            "PYTHONPATH": os.pathsep.join(paths),
            "TMPDIR": scratch,
            "LIGHTNING_SUITE_OUTCOMES": str(self.outcomes.resolve()),
            **self.variables,
        }

    def _log(self) -> Path:
        return self.outcomes / f"{self.copy.name}.log"

    def _log_end(self) -> str:
        """From where Python's fault handler says which thread is where; else the last of it."""
        log = self._log().read_text(encoding="utf-8", errors="replace")
        at = log.find("Fatal Python error")
        return log[at : at + LOG_CHARACTERS] if at >= 0 else log[-LOG_CHARACTERS:]

    def _last_outcome(self, files: Sequence[str]) -> float:
        """When the last line was written; 0 if there is none."""
        paths = [self.outcomes / f"{_name(file)}.jsonl" for file in files]
        return max((path.stat().st_mtime for path in paths if path.is_file()), default=0.0)


def read(outcomes: Path) -> dict[str, Outcome]:
    """The outcomes in a folder, by test; what has begun only is left out."""
    return {str(line["test"]): Outcome(**line) for line in _all_lines(outcomes) if line["outcome"] not in NOT_ENDED}


def warned(outcomes: Path) -> list[tuple[str, str]]:
    """What the profiler itself warned of: test and text."""
    return [(str(line["test"]), str(line["why"])) for line in _all_lines(outcomes) if line["outcome"] == "warned"]


def _all_lines(outcomes: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(outcomes.glob("*.jsonl")):
        yield from _lines(path)


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]  # a kill may tear one


def _under_way(outcomes: Path, files: Sequence[str]) -> list[str]:
    """Tests that have begun and not ended."""
    found: list[str] = []
    for file in files:
        lines = _lines(outcomes / f"{_name(file)}.jsonl")
        ended = {line["test"] for line in lines if line["outcome"] not in NOT_ENDED}
        found += [str(line["test"]) for line in lines if line["test"] not in ended]
    return found


def _add(outcomes: Path, test: str, outcome: str, why: str) -> None:
    line = {"test": test, "outcome": outcome, "seconds": 0.0, "why": why}
    with (outcomes / f"{_name(test.partition('::')[0])}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _name(file: str) -> str:
    return file.replace("/", "+")


def _complete(outcomes: Path, file: str) -> bool:
    return (outcomes / f"{_name(file)}.complete").exists()


def _end(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
