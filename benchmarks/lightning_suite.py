"""Lightning's own test suite without and with ``GPUPROF=1``: what newly fails, by class; prints a table, writes JSON.

    python benchmarks/lightning_suite.py CHECKOUT --python VENV/bin/python -n 2

``CHECKOUT`` is Lightning's repository at the version that ``--python`` has installed, with what its tests need; nothing
is cloned or installed. The profiler is the one that this program lies beside. A test that fails only with the profiler
is run again both ways, apart from the rest, before it counts. Most of what is left counts callbacks, calls or files: a
profiler is one more of them. Those are listed in ``suite_expected.py`` with reasons; anything else is unexpected and
makes the exit code 1. What the profiler itself warned of is counted as well: a part that failed and was switched off
fails no test.

Outcomes are kept in ``--work`` as they come: ``--resume`` goes on where a run was broken off. ``--only`` with the JSON
of an earlier run runs again what newly failed in it.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paired import RESULTS, wide_console, write_json
from rich.table import Table
from suite_expected import CLASSES, Expected
from suite_runs import ROOT, SUITE, Outcome, Suite, read, warned

WAYS: Mapping[str, Mapping[str, str]] = {"without": {}, "with": {"GPUPROF": "1"}}
UNEXPECTED = "unexpected"
_TRIED = """
import json, platform
from importlib.metadata import version
from lightning.pytorch import Trainer
names = ("lightning", "torch", "pytest")
trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_checkpointing=False)
profiled = any(type(callback).__name__ == "GpuProfiler" for callback in trainer.callbacks)
print("\\n" + json.dumps([profiled, {"python": platform.python_version(), **{name: version(name) for name in names}}]))
"""
"""Whether ``GPUPROF=1`` gives a Trainer the profiler, and the versions; the last line printed."""


@dataclass(frozen=True, kw_only=True)
class NewFailures:
    """What fails with the profiler only."""

    classes: Mapping[str, Sequence[str]]
    """Tests by the name of their class; :data:`UNEXPECTED` is one."""
    not_again: Sequence[str]
    """Failed with the profiler among others, and did not when each was run by itself; or failed without it then."""


def newly_failing(without: Mapping[str, Outcome], with_: Mapping[str, Outcome]) -> list[str]:
    """Tests that fail with the profiler and not without it."""
    return [test for test, outcome in with_.items() if outcome.bad and test in without and not without[test].bad]


def class_of(outcome: Outcome, classes: Sequence[Expected] = CLASSES) -> str:
    """The first class that has the test and is about such an error, or :data:`UNEXPECTED`."""
    name = outcome.test.removeprefix(f"{SUITE}/").partition("[")[0]
    return next((known.name for known in classes if known.has(name, outcome.why)), UNEXPECTED)


def classify(new: Mapping[str, Outcome], classes: Sequence[Expected] = CLASSES) -> dict[str, list[str]]:
    """Test ids by class, in the order of the classes, what is unexpected last; without the classes that are empty."""
    names = [*(known.name for known in classes), UNEXPECTED]
    found = {test: class_of(outcome, classes) for test, outcome in new.items()}
    by_class = {name: sorted(_short(test) for test in found if found[test] == name) for name in names}
    return {name: tests for name, tests in by_class.items() if tests}


def compare(
    without: Mapping[str, Outcome],
    with_: Mapping[str, Outcome],
    again_without: Mapping[str, Outcome],
    again_with: Mapping[str, Outcome],
    classes: Sequence[Expected] = CLASSES,
) -> NewFailures:
    """What is new both times."""
    first, second = newly_failing(without, with_), set(newly_failing(again_without, again_with))
    return NewFailures(
        classes=classify({test: again_with[test] for test in first if test in second}, classes),
        not_again=sorted(_short(test) for test in first if test not in second),
    )


def as_table(found: NewFailures, classes: Sequence[Expected] = CLASSES) -> Table:
    """The classes for a person."""
    table = Table(title="Lightning's tests that fail only with GPUPROF=1")
    table.add_column("class")
    table.add_column("tests", justify="right")
    table.add_column("why")
    reasons = {known.name: known.why for known in classes}
    for name, tests in found.classes.items():
        table.add_row(name, str(len(tests)), reasons.get(name, "\n".join(tests)))
    if found.not_again:
        table.add_row("not again", str(len(found.not_again)), "failed among others, not when run again by itself")
    return table


def warnings_of(told: Sequence[tuple[str, str]]) -> dict[str, int]:
    """How many tests each warning of the profiler came up in, most first; numbers and paths in it are left out."""
    texts = {(test, re.sub(r"\d+", "N", re.sub(r"(/[\w.+-]+)+", "PATH", text))) for test, text in told}
    return dict(Counter(text for _, text in texts).most_common())


def _short(test: str) -> str:
    return test.removeprefix(f"{SUITE}/")


def _run_both(suite: Suite, tests: Sequence[str], work: Path) -> tuple[dict[str, Outcome], dict[str, Outcome]]:
    for way, variables in WAYS.items():
        suite.run(tests, work / way, variables)
    return read(work / "without"), read(work / "with")


def _counts(outcomes: Mapping[str, Outcome]) -> dict[str, float]:
    counts = Counter(outcome.outcome for outcome in outcomes.values())
    seconds = sum(outcome.seconds for outcome in outcomes.values())
    return {"tests": len(outcomes), **dict(sorted(counts.items())), "seconds": round(seconds)}


def _earlier(document: Path) -> list[str]:
    classes = json.loads(document.read_text(encoding="utf-8"))["classes"]
    return [f"{SUITE}/{test}" for tests in classes.values() for test in tests]


def _tried(python: Path) -> tuple[bool, dict[str, str]]:
    own = {**os.environ, **WAYS["with"], "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([python, "-c", _TRIED], env=own, check=True, capture_output=True, text=True)
    profiled, versions = json.loads(ran.stdout.splitlines()[-1])
    return profiled, versions


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path, help="Lightning's repository, at the version that --python has")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="has Lightning and its tests' needs")
    parser.add_argument("-n", "--processes", type=int, default=1, help="at once; each with a copy of the tests")
    parser.add_argument("--files", nargs="+", default=["**/test_*.py"], help=f"patterns below {SUITE}")
    parser.add_argument("--only", type=Path, help="the JSON of an earlier run: what newly failed in it")
    parser.add_argument("--timeout", type=float, default=180.0, help="of one test in seconds: longer is hung")
    parser.add_argument("--resume", action="store_true", help="keep the outcomes that --work has of the same tree")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "lightning_suite", help="keeps the outcomes")
    parser.add_argument("--json", type=Path, default=RESULTS / "lightning_suite.json", help="where the results go")
    options = parser.parse_args(arguments)
    if not (options.checkout / SUITE).is_dir():
        parser.error(f"{options.checkout} must be a checkout of Lightning's repository: it has no {SUITE}")
    suite = Suite(
        checkout=options.checkout.resolve(),
        python=options.python.absolute(),
        processes=options.processes,
        timeout_s=options.timeout,
    )
    tests = _earlier(options.only) if options.only else suite.files(options.files)
    if not tests:
        parser.error(f"--files must match a file below {SUITE}, got {' '.join(options.files)}")
    profiled, versions = _tried(suite.python)
    if not profiled:
        parser.error(
            f"--python must have this profiler installed, got {suite.python}, whose Trainer has no GpuProfiler with "
            f"GPUPROF=1: {suite.python} -m pip install --no-deps -e {ROOT}"
        )
    if not options.resume:
        shutil.rmtree(options.work, ignore_errors=True)
    begin = time.perf_counter()
    without, with_ = _run_both(suite, tests, options.work)
    again = _run_both(suite, newly_failing(without, with_), options.work / "again")
    found = compare(without, with_, *again)
    console = wide_console()
    console.print(as_table(found))
    for way, outcomes in (("without", without), ("with", with_)):
        console.print(f"{way}: {_counts(outcomes)}", markup=False)
    said = warnings_of(warned(options.work / "with"))
    for text, count in said.items():
        console.print(f"in {count} tests: {text}", markup=False)
    write_json(
        options.json,
        "lightning_suite",
        settings={"processes": options.processes, "took_s": round(time.perf_counter() - begin, 1)},
        versions=versions,
        without=_counts(without),
        with_gpuprof=_counts(with_),
        classes=found.classes,
        not_again=found.not_again,
        warnings=said,
        reasons={known.name: known.why for known in CLASSES if known.name in found.classes},
    )
    console.print(f"written to {options.json}", markup=False)
    return 1 if UNEXPECTED in found.classes else 0


if __name__ == "__main__":
    sys.exit(main())
