"""A run's line in the list of runs, from what is written already, without analysis."""

import datetime
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.claim import Claim
from lightning_gpuprof.model.conditions import fact_of
from lightning_gpuprof.model.finding import Expected, Finding, Gain, Verdict
from lightning_gpuprof.model.journal import Footer, Header, Value
from lightning_gpuprof.model.report import Report, Steps, Wall
from lightning_gpuprof.sinks import gains
from lightning_gpuprof.tensorboard_plugin.run_files import RunFiles, SeenFile

RUNNING_S = 120.0
"""A journal without an end that was written to within this time is of a run that goes on: it is written to every few
seconds, whatever the run does."""
MAX_KEPT = 4_000
MAX_BYTES = 64 << 20
_UNREADABLE = (OSError, ValueError, msgspec.MsgspecError, RecursionError, OverflowError)
"""What a file can raise that is no journal or report of ours, or holds numbers that no run can have."""
_TAIL_BYTES = 1 << 14
_HEAD_BYTES = 1 << 16


class Summary(msgspec.Struct, kw_only=True, frozen=True):
    """What the list says of a run; None is not known (yet)."""

    state: str
    """``running``, ``finished``, ``interrupted: …`` or ``no end``."""
    stage: str = ""
    verdict: str = ""
    finding: str = ""
    """What the first finding says, in one line."""
    speedup: float | None = None
    """Of the first finding, as expected, or else at most."""
    sure: str = ""
    """``about`` as expected, ``up to`` else, as the first screen has it."""
    samples_per_s: float | None = None
    period_ms: float | None = None
    """Mean step time, which ``samples_per_s`` is of."""
    wall_s: float | None = None
    steps: int | None = None
    started_s: float | None = None
    """Unix time."""
    fixed: dict[str, Value] = {}
    """The conditions in which runs that are compared have to be alike."""


class _Found(msgspec.Struct):
    """What the list shows of a finding."""

    rule: str
    title: str = ""
    gain: Gain | None = None
    expected: Expected | None = None
    change: Change | None = None
    explains: Claim | None = None


class _Cpus(msgspec.Struct):
    usable_cpus: float | None = None


class _Head(msgspec.Struct):
    """The parts of a report that the list shows; all others are skipped, not decoded."""

    run: dict[str, Value]
    wall: Wall
    steps: Steps
    verdict: Verdict
    findings: tuple[_Found, ...] = ()
    host: _Cpus = msgspec.field(default_factory=_Cpus)


class Summaries:
    """Summaries of runs, made once for each state of their files.

    Args:
        now: Unix time in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Summary] = OrderedDict()

    def of(self, files: RunFiles) -> Summary:
        """The summary of a run, of its files as they are now."""
        key = f"{files.folder}|{files.version}"
        with self._lock:
            kept = self._kept.get(key)
        if kept is None:
            kept = _summary(files)
            self._keep(key, kept)
        return msgspec.structs.replace(kept, state=self._state(kept.state, files))

    def add(self, files: RunFiles, report: Report) -> None:
        """Remember what a report says that was made from a journal, so that the list needs no analysis for it.

        Args:
            files: The run's files, as they were when the report was made.
            report: The report.
        """
        self._keep(f"{files.folder}|{files.version}", _summary_of_report(report))

    def _keep(self, key: str, summary: Summary) -> None:
        with self._lock:
            self._kept[key] = summary
            self._kept.move_to_end(key)
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)

    def _state(self, status: str, files: RunFiles) -> str:
        if status != "unfinished":
            return status
        age_s = self._now() - files.changed_ns / 1e9
        return "running" if age_s < RUNNING_S else "no end"


def _summary(files: RunFiles) -> Summary:
    damaged: list[str] = []
    if files.report is not None and files.report_is_current:
        try:
            return _summary_of_report(msgspec.json.decode(_read(files.report, MAX_BYTES), type=_Head))
        except _UNREADABLE:
            damaged.append(files.report.path.name)
    if files.journals:
        try:
            return _summary_of_journal(files.journals[0])
        except _UNREADABLE:
            damaged.append(files.journals[0].path.name)
    why = f"{' and '.join(damaged)} empty or damaged" if damaged else "no report and no journal"
    return Summary(state=f"cannot be read: {why}")


def _speedup(report: Report | _Head, finding: Finding | _Found) -> float | None:
    """As expected, or else at most; of what lies between the steps that of the whole run."""
    gain, expected = finding.gain, finding.expected
    if gain is None:
        return None
    if gains.scale_of(finding.explains) == "run":
        saved_ms = gain.saved_ms_per_step if expected is None else expected.whole_ms - expected.step_ms
        return gains.run_faster(report.wall, saved_ms * report.steps.count / 1e3)
    return gain.speedup_max if expected is None else expected.speedup


def _summary_of_report(report: Report | _Head) -> Summary:
    findings: Sequence[Finding | _Found] = report.findings
    period, first = report.steps.period_ms, next(iter(findings), None)
    likely = (
        first is not None
        and first.expected is not None
        and not gains.beyond_cpus(first.change, report.host.usable_cpus)
    )
    return Summary(
        state=str(report.run.get("status") or "finished"),
        stage=str(report.run.get("stage") or ""),
        verdict=report.verdict.kind,
        finding="" if first is None else first.title or first.rule,
        speedup=None if first is None else _speedup(report, first),
        sure="about" if likely else "up to",
        samples_per_s=report.steps.samples_per_s,
        period_ms=period.mean if period else None,
        wall_s=report.wall.total_s,
        steps=report.steps.count,
        started_s=_unix_s(report.run.get("started")),
        fixed={name: value for name, value in report.run.items() if fact_of(name).role == "fixed"},
    )


def _summary_of_journal(journal: SeenFile) -> Summary:
    """From the first line and the last one."""
    with open(journal.path, "rb") as file:
        header = msgspec.json.decode(file.readline(_HEAD_BYTES), type=Header)
        file.seek(max(0, journal.size_bytes - _TAIL_BYTES))
        last = file.read(_TAIL_BYTES).splitlines()[-1:]
    try:
        footer: Footer | None = msgspec.json.decode(last[0], type=Footer) if last else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        footer = None
    began_s = header.epoch_ns / 1e9
    wall_s = journal.changed_ns / 1e9 - began_s if footer is None else (footer.end_ns - header.start_ns) / 1e9
    return Summary(
        state=footer.status if footer else "unfinished",
        stage=header.stage,
        wall_s=wall_s if wall_s > 0 else None,
        started_s=began_s,
    )


def _read(file: SeenFile, most_bytes: int) -> bytes:
    with open(file.path, "rb") as opened:
        data = opened.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(f"{file.path.name} is too large for the list")
    return data


def _unix_s(started: Value) -> float | None:
    try:
        return datetime.datetime.fromisoformat(str(started)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
