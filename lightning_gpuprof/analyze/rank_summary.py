"""The summary of a rank's journal, and those of all ranks in a job's folder."""

from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from lightning_gpuprof.analyze import cpu_time, devices, rank_waits, steady
from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.analyze.journal_columns import Ints, Journal
from lightning_gpuprof.analyze.rank_ends import WAITING_PHASES
from lightning_gpuprof.analyze.rank_notices import notable, window_lines
from lightning_gpuprof.errors import JournalError
from lightning_gpuprof.model.clock_events import NO_LIMIT
from lightning_gpuprof.model.device import MIN_SAMPLES
from lightning_gpuprof.model.journal import Sample, Slot
from lightning_gpuprof.model.memory import outside_bytes
from lightning_gpuprof.model.phases import PHASES, OutsidePart, Phase, SegmentKind
from lightning_gpuprof.model.rank_memory import GpuNeed
from lightning_gpuprof.model.rank_summary import (
    MAX_DEVICE_STEPS,
    MAX_EPOCHS,
    MAX_LONGEST,
    MAX_READINGS,
    MAX_SENTENCES,
    MAX_SITE_CHARACTERS,
    SUMMARY_VERSION,
    RankGpu,
    RankSummary,
    StepTable,
    drawn,
)
from lightning_gpuprof.model.report import OWN_NAME

_ENDING = ".summary.json"
MOST_BYTES_WHILE_RUNNING = 2**17
"""Of a journal that goes on: its header, and the last 64 kB, which hold 15 s of a run or more."""
_OWN_CPU = ("process", "workers", "children")
"""What a rank is, by the subjects of its own samples."""
_OF_BATCHES = ("data_wait", "h2d", "forward")
_MEMORY = {
    ("process", "rss_bytes"): "rss",
    ("host", "memory_available_bytes"): "available",
    ("gpu", "memory_used_bytes"): "{} used",
}
"""What is kept of memory, by subject and value of a sample."""
_AROUND_BATCHES = ("on_validation_batch_start", "on_validation_batch_end")


class OtherRanks(msgspec.Struct, frozen=True, kw_only=True):
    """Of a job, without the rank that is looked at."""

    summaries: list[RankSummary] = msgspec.field(default_factory=list)
    unread: dict[int, str] = msgspec.field(default_factory=dict)
    """Rank -> why there is no summary of it."""


def summary_path(journal: Path) -> Path:
    """Where the rank of a journal leaves its summary."""
    return journal.with_name(journal.stem + _ENDING)


def summarise(journal: Journal) -> RankSummary:
    """What other ranks' reports need of this one."""
    header, steps = journal.header, journal.steps
    steady_steps = steady.select(steps, journal.phases).steady
    waits = rank_waits.waits_of(journal)
    rows = np.flatnonzero(steady_steps)
    rows = rows[np.unique(steps.batch[rows], return_index=True)[1]]
    few = drawn(steps.batch[rows])

    def table(rows: Ints) -> StepTable:
        chosen = {phase: column[rows].astype(np.int64) for phase, column in journal.phases.items()}
        for phase, waited_ns in waits.items():
            chosen[phase] -= waited_ns[rows]
            chosen["sync"] += waited_ns[rows]
        return StepTable.of(steps.batch[rows], steps.period_ns[rows], chosen)

    readings = _cpu_readings(journal)
    return RankSummary(
        version=SUMMARY_VERSION,
        job=header.job,
        stage=header.stage,
        rank=header.rank,
        world_size=header.world_size,
        host=header.host,
        pid=header.pid,
        pid_space=header.pid_space,
        device=_text(journal, "device.type"),
        start_ns=header.start_ns,
        epoch_ns=header.epoch_ns,
        end_ns=_end_ns(journal),
        status=journal.footer.status if journal.footer else "",
        failed_at=journal.footer.place if journal.footer else "",
        left_collective=journal.footer is not None and journal.footer.left_collective,
        batches=int(steps.batch[-1] - steps.batch[0]) + 1 if len(steps) else 0,
        epochs=np.unique(steps.epoch, return_counts=True)[1][:MAX_EPOCHS].tolist() if journal.is_whole else [],
        steps=table(rows[few]),
        longest=table(rows[_longest(steps.period_ns[rows])]) if len(few) < len(rows) else None,
        steady_steps=len(rows),
        steady_ns=int(steps.period_ns[rows].sum()),
        last_step_ns=int(steps.start_ns[-1] + steps.period_ns[-1]) if len(steps) else header.start_ns,
        outside_s=_outside_s(journal) if journal.is_whole else None,
        own_phases=_own_phases(journal, waits),
        run_delay_ratio=cpu_time.SampledSteps(journal, steady_steps).delay_ratio(),
        strategy=_text(journal, "trainer.strategy"),
        device_steps=_device_steps(journal, steady_steps),
        **_standing(journal),
        sites=_sites(journal),
        memory=_memory(journal),
        peak_rss_bytes=_peak_rss_bytes(journal),
        gpu=_gpu(journal),
        gpu_need=_gpu_need(journal),
        xids=[] if _text(journal, "device.type") == "cpu" else list(devices.xids(journal))[-MAX_SENTENCES:],
        batch_samples=_number(journal, "loader.batch_size"),
        batch_length=_batch_length(journal),
        workers=_number(journal, "loader.num_workers"),
        read_bytes_per_s=_read_bytes_per_s(journal),
        tensor_parallel=int(_number(journal, "trainer.tensor_parallel") or 1),
        switch=_text(journal, "slurm.switch"),
        pipeline_stage=None if (stage := _number(journal, "trainer.pipeline_stage")) is None else int(stage),
        notices=[f"{notice.part}: {notice.message}" for notice in notable(journal)][:MAX_SENTENCES],
        windows=window_lines(journal)[-MAX_SENTENCES:],
        cpu_set=_text(journal, "host.cpu_set"),
        cpu_t_s=[round((t_ns - header.start_ns) / 1e9, 3) for t_ns, _ in readings],
        cpu_cpus=[round(cpus, 3) for _, cpus in readings],
    )


def _longest(period_ns: Ints) -> Ints:
    """Rows of the longest steps and of those before them."""
    longest = np.argsort(period_ns)[-MAX_LONGEST:]
    return np.unique(np.r_[longest, np.maximum(longest - 1, 0)])


def _end_ns(journal: Journal) -> int:
    """When it ended; without an end, when the last thing was recorded: a rank that waits ends no step."""
    last_ns = journal.samples[-1].t_ns if journal.samples and journal.footer is None else 0
    return max(journal.end_ns, last_ns)


def _standing(journal: Journal) -> dict[str, Any]:
    """Where it does not move on, by field; nothing where it does."""
    found = journal.standstill
    if found is None or not 0 <= found.slot < len(journal.slots) or (found.busy and journal.footer is not None):
        return {}
    until_ns = max(found.t_ns, journal.samples[-1].t_ns if journal.samples else 0)
    phase = journal.slots[found.slot].step_phase
    in_collective = found.collective or phase in WAITING_PHASES
    return {
        "stands_in": phase,
        "stands_at": found.place,
        "stands_collective": (found.pending or found.collective) if in_collective else "",
        "stands_s": (until_ns - found.since_ns) / 1e9,
        "busy": found.busy,
    }


def _sites(journal: Journal) -> dict[Phase, str]:
    by_phase: dict[Phase, Counter[str]] = {}
    for slot, counts in journal.sites.items():
        if 0 <= slot < len(journal.slots):
            by_phase.setdefault(journal.slots[slot].step_phase, Counter()).update(counts)
    return {phase: of.most_common(1)[0][0][:MAX_SITE_CHARACTERS] for phase, of in by_phase.items() if of}


def _memory(journal: Journal) -> dict[str, float]:
    found: dict[str, float] = {}
    for sample in journal.samples:
        for (subject, name), said in _MEMORY.items():
            value = sample.values.get(name) if sample.subject.rstrip("0123456789") == subject else None
            if value is not None:
                found[said.format(sample.subject)] = value
    return found


def _peak_rss_bytes(journal: Journal) -> float | None:
    """Of a process that trains on the CPU."""
    if _text(journal, "device.type") != "cpu":
        return None
    own = (one.values.get("rss_bytes") for one in journal.samples if one.subject not in ("workers", "children"))
    return max((value for value in own if value is not None), default=None)


def _gpu_need(journal: Journal) -> GpuNeed | None:
    """Of the first device whose allocator was read."""
    read = [one for one in journal.samples if one.source == "memory" and "allocated_peak_bytes" in one.values]
    if not read:
        return None
    device = read[0].subject.partition(" ")[0]
    read = [one for one in read if one.subject.partition(" ")[0] == device]
    driver = [one for one in journal.samples if one.source == "nvml" and one.subject == device]
    reserved, used = _most(read, "reserved_peak_bytes"), _most(driver, "memory_used_bytes")
    total = _number(journal, f"memory.{device}.total_bytes")
    return GpuNeed(
        tensors_bytes=_most(read, "allocated_peak_bytes") or 0.0,
        outside_bytes=outside_bytes(used, reserved, total),
        total_bytes=total,
    )


def _most(samples: Iterable[Sample], name: str) -> float | None:
    return max((value for one in samples if (value := one.values.get(name)) is not None), default=None)


def _gpu(journal: Journal) -> RankGpu | None:
    found = devices.devices(journal)
    if len(found) != 1:
        return None
    gpu = found[0]
    is_measured = gpu.busy is not None and gpu.busy.samples >= MIN_SAMPLES
    return RankGpu(
        subject=gpu.subject,
        name=gpu.name,
        uuid=gpu.uuid,
        sm_clock_mhz=gpu.busy.sm_clock_median_mhz if gpu.busy is not None and is_measured else None,
        throttled={
            one.reason: round(one.busy_ratio, 3)
            for one in (gpu.throttle or ())
            if is_measured
            if one.busy_ratio and one.reason not in NO_LIMIT
        },
    )


def _batch_length(journal: Journal) -> float | None:
    """Of the loader of which most batches were inspected; sums grow, so its last sample has them all."""
    read = [one.values for one in journal.samples if one.source == "input" and one.values.get("rows_count")]
    most = max(read, key=lambda values: values.get("looks_count") or 0.0, default=None)
    return None if most is None else round((most["cells_count"] or 0.0) / (most["rows_count"] or 1.0), 1)


def _read_bytes_per_s(journal: Journal) -> float | None:
    by_time = _by_time(journal, "read_bytes_per_s")
    return round(sum(by_time.values()) / len(by_time)) if by_time else None


def _by_time(journal: Journal, name: str) -> dict[int, float]:
    """A value summed over all that the rank is, by the times of its samples."""
    by_time: dict[int, float] = {}
    for sample in journal.samples:
        value = sample.values.get(name) if sample.source == "host" and sample.subject in _OWN_CPU else None
        if value is not None:
            by_time[sample.t_ns] = by_time.get(sample.t_ns, 0.0) + value
    return by_time


def _outside_s(journal: Journal) -> dict[OutsidePart, float]:
    """Own time outside of steps; what looks found to be waiting in collectives is left out."""
    found_ns: dict[OutsidePart, float] = {}
    for slot, kind, charged_ns in journal.time_of_slots:
        part = _outside_part(journal, slot, kind)
        if part is not None and charged_ns:
            waits = journal.in_collectives.get(slot.id, 0) / max(1, journal.looks.get(slot.id, 0))
            found_ns[part] = found_ns.get(part, 0.0) + (1 - waits) * charged_ns
    return {part: ns / 1e9 for part, ns in found_ns.items()}


def _outside_part(journal: Journal, slot: Slot, kind: SegmentKind) -> OutsidePart | None:
    if slot.region == "validation":
        return "validation" if slot.phase in _OF_BATCHES or slot.hook in _AROUND_BATCHES else None
    if slot.region != "main" or not slot.hook or slot.callback == OWN_NAME:
        return None
    if kind == "setup":
        return "setup"
    # On a device, the host may wait there for what the device waits for.
    return "epoch_gap" if kind == "epoch_gap" and _text(journal, "device.type") == "cpu" else None


def _own_phases(journal: Journal, separated: Collection[Phase]) -> tuple[Phase, ...]:
    around: tuple[Phase, ...] = ("data_wait", "h2d", "zero_grad", "callbacks", "logging")
    own = {*around, *separated} if _text(journal, "device.type") == "cpu" else {"data_wait"}
    if _number(journal, "trainer.synced_values"):  # ranks wait for each other there
        own.discard("logging")
    return tuple(phase for phase in PHASES if phase in own)


def _text(journal: Journal, condition: str) -> str:
    found = journal.conditions.get(condition)
    return found if isinstance(found, str) else ""


def _number(journal: Journal, condition: str) -> float | None:
    found = journal.conditions.get(condition)
    return None if isinstance(found, (str, bool)) or found is None else float(found)


def _device_steps(journal: Journal, steady_steps: steady.Mask) -> StepTable | None:
    """Steady steps by the device's clock; None if there are none."""
    rows, of_steps = cpu_time.rows_of(journal.device.batch, journal, steady_steps)
    rising = np.unique(journal.device.batch[rows], return_index=True)[1]
    kept = rising[np.linspace(0, len(rising) - 1, min(len(rising), MAX_DEVICE_STEPS)).astype(int)]
    if not len(kept):
        return None
    rows, of_steps = rows[kept], of_steps[kept]
    times = journal.device.phases(journal.slots)
    return StepTable.of(
        journal.device.batch[rows],
        journal.steps.period_ns[of_steps],
        {phase: column[rows] for phase, column in times.items()},
    )


def _cpu_readings(journal: Journal) -> list[tuple[int, float]]:
    """Times and the CPUs that the rank used then."""
    readings = sorted(_by_time(journal, "cpu_cpus").items())
    kept = np.linspace(0, len(readings) - 1, min(len(readings), MAX_READINGS)).astype(int)
    return [readings[row] for row in kept.tolist()]


def other_ranks(own: Path, *, only_summaries: bool = False) -> OtherRanks:
    """The summaries of the other ranks in a run's folder; made from the journals of which there is none up to now.

    Args:
        own: Journal of the rank that is looked at.
        only_summaries: Read no journal, and the summaries as they are.

    Returns:
        In order of rank; of each rank without a summary why there is none.
    """
    found = OtherRanks()
    for rank, journal in sorted(others_in_folder(own).items()):
        summary = left_by(journal, however_old=only_summaries)
        if summary is None and only_summaries:
            found.unread[rank] = "left no summary before the report was made; `gpuprof report` reads its journal"
            continue
        try:
            found.summaries.append(summary or summarise(read_journal(journal)))
        except JournalError as error:
            found.unread[rank] = f"its journal cannot be read ({error})"
    return found


class _End(msgspec.Struct):
    """Of a summary, which is read as often as others end."""

    status: str


class Unended:
    """Ranks whose summaries do not say how they ended, up to now.

    Args:
        journals: Of the ranks.
    """

    def __init__(self, journals: Iterable[Path]) -> None:
        self._read: dict[Path, tuple[int, int] | None] = dict.fromkeys(map(summary_path, journals))

    def look(self) -> list[Path]:
        """The summaries of those that have not; read are those that changed since the look before."""
        for summary, before in list(self._read.items()):
            try:
                found = summary.stat()
                seen = found.st_mtime_ns, found.st_ino  # a new file replaces it
                if seen != before:
                    status = msgspec.json.decode(summary.read_bytes(), type=_End).status
                    self._read[summary] = seen
                    if status:
                        del self._read[summary]
            except (OSError, ValueError):
                continue
        return list(self._read)


def others_in_folder(own: Path) -> dict[int, Path]:
    """Rank -> where its journal is, of the other ranks than the one of this journal."""
    return {rank: path for rank, path in journals_in(own.parent).items() if path.name != own.name}


def journals_in(folder: Path) -> dict[int, Path]:
    """Rank -> where its journal is, or was before only its summary was copied."""
    names = {path.name.split(".")[0] for ending in (".jsonl", _ENDING) for path in folder.glob(f"rank*{ending}")}
    numbers = {name: name.removeprefix("rank") for name in names}
    return {int(number): folder / f"{name}.jsonl" for name, number in numbers.items() if number.isdecimal()}


def left_by(journal: Path, *, however_old: bool = False, of_ends: bool = False) -> RankSummary | None:
    """The summary beside a journal.

    Args:
        journal: Of the rank; it need not be there.
        however_old: The journal may have more.
        of_ends: It may have more between its ends.

    Returns:
        None if it cannot be read, is of another version, or the journal has more.
    """
    try:
        summary = msgspec.json.decode(summary_path(journal).read_bytes(), type=RankSummary)
        for table in (summary.steps, summary.longest, summary.device_steps):
            if table is not None:
                table.columns()
        has_all = however_old or summary.status or not journal.exists()
        if not has_all and (of_ends or summary.is_whole):
            has_all = journal.stat().st_size <= summary.journal_bytes  # at an address, a large one is an old copy
    except (OSError, ValueError):
        return None
    return summary if has_all and summary.version == SUMMARY_VERSION else None
