"""Summaries of ranks: small whatever the run's length, of the same steps on all ranks, none the wiser if damaged."""

import io
import os
from pathlib import Path

import msgspec
import numpy as np
import pytest
from built_journals import MS, journal
from msgspec.structs import replace
from rank_folders import write_rank
from rank_windows import write_windows
from sample_journals import write_journal

from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.analyze.journal_columns import DeviceColumns
from lightning_gpuprof.analyze.rank_notices import of_others
from lightning_gpuprof.analyze.rank_summary import Unended, left_by, other_ranks, summarise, summary_path
from lightning_gpuprof.job_ranks import job_ranks
from lightning_gpuprof.model.journal import Conditions, Footer, Header, Notice, Sample, WindowRecord
from lightning_gpuprof.model.packing import Ints
from lightning_gpuprof.model.rank_summary import MAX_STEPS, RankSummary, StepTable, drawn
from lightning_gpuprof.model.rank_times import RankTimes
from lightning_gpuprof.pipeline import load_report
from lightning_gpuprof.run_folder import metrics_of
from lightning_gpuprof.sinks.terminal import print_report
from lightning_gpuprof.sinks.views import windows as views
from lightning_gpuprof.summary_file import SummaryFile


@pytest.mark.parametrize("n", [200, 5_000, 200_000])
def test_a_summary_is_small_whatever_the_length_of_the_run(n: int) -> None:
    forward_ms = np.random.default_rng(1).lognormal(3, 0.5, n)
    one = journal(n, forward_ms=forward_ms)
    measured = one.steps.batch[::2]
    charged = {slot: column[::2] * 7 // 8 for slot, column in one.steps.charged.items()}
    one = replace(one, device=DeviceColumns(batch=measured, charged=charged))
    assert (summarise(one).longest is None) == (n == 200)
    assert len(msgspec.json.encode(summarise(one))) < 30_000


def test_the_table_of_ranks_has_the_memory_and_the_speed_of_each(tmp_path: Path) -> None:
    for rank in range(2):
        with write_rank(tmp_path, rank, 2).open("ab") as file:
            for gib in (1, 2 * rank + 2, 1):
                values: dict[str, float | None] = {"rss_bytes": gib * 2.0**30}
                found = Sample(source="host", subject="process", t_ns=11 * 10**9 + gib, values=values)
                file.write(msgspec.json.encode(found) + b"\n")
            file.write(msgspec.json.encode(Conditions(values={"loader.batch_size": 12})) + b"\n")
    ranks = load_report(tmp_path).ranks
    assert ranks is not None
    assert [row.peak_memory_bytes for row in ranks.rows] == [2 * 2**30, 4 * 2**30]
    assert [row.samples_per_s for row in ranks.rows] == [pytest.approx(200), pytest.approx(200)]  # 12 in 60 ms
    on_gpu = replace(read_journal(tmp_path / "rank0.jsonl"), conditions={"device.type": "cuda"})
    assert summarise(on_gpu).peak_rss_bytes is None  # what a GPU is needed for is in gpu_need


def test_a_short_run_is_in_its_summary_whole() -> None:
    batch, period_ns, phases = summarise(journal(100)).steps.columns()
    assert (np.diff(batch) == 1).all()
    assert set(period_ns.tolist()) == {10 * MS}
    assert {phase: set(column.tolist()) for phase, column in phases.items()} == {
        "data_wait": {4 * MS},
        "forward": {5 * MS},
        "callbacks": {1 * MS},
    }


@pytest.mark.parametrize("first", [0, 1, 1_000_003])
def test_ranks_draw_the_same_steps_without_a_word(first: int) -> None:
    of_one, of_other = np.arange(first, first + 50_000), np.arange(first + 12, first + 49_000)
    one, other = of_one[drawn(of_one)], of_other[drawn(of_other)]
    assert MAX_STEPS / 3 < len(one) <= MAX_STEPS
    assert len(np.intersect1d(one, other)) > 0.45 * len(one)


@pytest.mark.parametrize("every", [2, 3, 4, 8, 10, 50, 64])
def test_what_comes_in_every_nth_step_is_drawn_as_often_as_it_comes(every: int) -> None:
    batch = drawn(np.arange(100_000))
    assert np.mean(batch % every == 0) == pytest.approx(1 / every, rel=0.25)


def test_a_table_comes_back_as_it_was() -> None:
    numbers = np.random.default_rng(3)
    batch: Ints = np.cumsum(numbers.integers(1, 900, 300))
    times = {"forward": numbers.integers(0, 10**6, 300) * 1000, "sync": np.zeros(300, np.int64)}
    table = msgspec.json.decode(
        msgspec.json.encode(StepTable.of(batch, times["forward"] + 1000, times)),  # type: ignore[arg-type]
        type=StepTable,
    )
    found, period_ns, phases = table.columns()
    assert (found == batch).all()
    assert (period_ns == times["forward"] + 1000).all()
    assert phases.keys() == {"forward"}
    assert (phases["forward"] == times["forward"]).all()


def test_a_damaged_table_is_no_table() -> None:
    table = summarise(journal(100)).steps
    with pytest.raises(ValueError, match="damaged"):
        msgspec.structs.replace(table, data=table.data[:-1] + b"x").columns()
    with pytest.raises(ValueError, match="expected"):
        msgspec.structs.replace(table, count=7).columns()


def test_a_rank_without_steps_has_a_summary(tmp_path: Path) -> None:
    summary = summarise(journal(0))
    assert msgspec.json.decode(msgspec.json.encode(summary), type=RankSummary) == summary
    assert len(summary.steps.columns()[0]) == 0


def put(folder: Path, rank: int, of: int) -> Path:
    """A rank's journal."""
    path = folder / f"rank{rank}.jsonl"
    write_journal(path, 40, tick_ns=1000)
    first, _, rest = path.read_bytes().partition(b"\n")
    header = msgspec.structs.replace(msgspec.json.decode(first, type=Header), rank=rank, world_size=of, job="j")
    path.write_bytes(msgspec.json.encode(header) + b"\n" + rest)
    return path


def test_ranks_that_cannot_be_read_leave_the_others(tmp_path: Path) -> None:
    own, *_ = (put(tmp_path, rank, 6) for rank in range(3))
    (tmp_path / "rank3.jsonl").write_bytes(b"")
    (tmp_path / "rank4.jsonl").write_bytes(b"\x00 no journal")
    found = other_ranks(own)
    assert [one.rank for one in found.summaries] == [1, 2]
    assert {rank: why.split(" (")[0] for rank, why in found.unread.items()} == {
        3: "its journal cannot be read",
        4: "its journal cannot be read",
    }


def test_more_than_64_ranks_are_read(tmp_path: Path) -> None:
    for rank in range(70):
        put(tmp_path, rank, 70)
    assert len(other_ranks(tmp_path / "rank0.jsonl").summaries) == 69


def test_a_summary_is_read_in_place_of_its_journal(tmp_path: Path) -> None:
    own, other = put(tmp_path, 0, 3), put(tmp_path, 1, 3)
    summary = replace(summarise(read_journal(other)), status="finished")
    summary_path(other).write_bytes(msgspec.json.encode(summary))
    other.write_bytes(b"not looked at")
    torn = put(tmp_path, 2, 3)
    summary_path(torn).write_bytes(b'{"torn')
    in_training = other_ranks(own, only_summaries=True)
    assert in_training.summaries == [summary]
    assert "left no summary" in in_training.unread[2]
    assert [one.rank for one in other_ranks(own).summaries] == [1, 2]
    assert Unended([other, torn]).look() == [summary_path(torn)]


def test_the_summary_of_a_running_rank_counts_while_its_journal_has_nothing_more(tmp_path: Path) -> None:
    own, other = write_rank(tmp_path, 0, 2), write_rank(tmp_path, 1, 2)
    SummaryFile().renew(other)
    (renewed,) = other_ranks(own).summaries
    assert (renewed.status, renewed.journal_bytes) == ("", other.stat().st_size)
    written = other.read_bytes()
    other.write_bytes(written[:-100])  # at an address, a large journal is an old copy
    assert left_by(other) == renewed
    other.write_bytes(written)
    with other.open("ab") as file:
        file.write(msgspec.json.encode(Footer(end_ns=10**12, status="finished", overhead={})) + b"\n")
    assert left_by(other) is None
    assert [one.status for one in other_ranks(own).summaries] == ["finished"]
    assert other_ranks(own, only_summaries=True).summaries == [renewed]
    other.unlink()  # only the summary was copied
    assert other_ranks(own).summaries == [renewed]


def test_those_waited_for_are_read_again_when_they_changed(tmp_path: Path) -> None:
    journals = [write_rank(tmp_path, rank, 3) for rank in (1, 2)]
    left = [summary_path(journal) for journal in journals]
    unended = Unended(journals)
    assert unended.look() == left  # not there yet
    for one in journals:
        SummaryFile().renew(one)
    assert unended.look() == left
    written = left[0].stat()
    ended = replace(left_by(journals[0]), status="finished")
    left[0].write_bytes(msgspec.json.encode(ended))
    os.utime(left[0], ns=(written.st_atime_ns, written.st_mtime_ns))
    assert unended.look() == left
    os.utime(left[0])
    assert unended.look() == left[1:]


def test_ranks_of_which_only_the_ends_are_known_are_compared_by_the_ends(tmp_path: Path) -> None:
    """Of which steps there are few among those that are drawn of a whole run."""
    own, other = (write_rank(tmp_path, rank, 2, steps=20_000, late_ms=21.0 * rank) for rank in range(2))
    SummaryFile().renew(other)
    metrics = metrics_of(read_journal(own), own, in_training=True)
    running = job_ranks(tmp_path)
    assert isinstance(metrics.ranks, RankTimes)
    assert min(metrics.ranks.steps, running.comparison.steps) > 200
    assert metrics.ranks.late.ranks == (1,)
    (later,) = other_ranks(own).summaries  # of the journal, which has more
    assert later.steady_steps > 15_000
    for path in (own, other):  # of which the ends are read
        SummaryFile().complete(path)
    over = job_ranks(tmp_path, most_bytes=1)
    assert over.comparison.steps > 200


def test_a_complete_summary_is_not_replaced_by_one_of_the_ends(tmp_path: Path) -> None:
    path, file = write_rank(tmp_path, 1, 2, steps=8_000), SummaryFile()
    file.renew(path)
    of_ends = left_by(path, of_ends=True)
    file.complete(path)
    file.renew(path)
    whole = left_by(path)
    assert of_ends.steady_steps < whole.steady_steps
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")] == []


def test_what_other_ranks_could_not_measure_and_their_windows_are_told_once() -> None:
    no_pid = Notice(part="nvml", message="its processes cannot be read")
    own = replace(journal(40), notices=[Notice(part="p", message="m")], conditions={"device.type": "cuda"})
    window = WindowRecord(start_step=20, stop_step=22, file="rank1.1.pt.trace.json.gz")
    refused = WindowRecord(start_step=20, stop_step=22, problem="another tracer is in use")

    def other(rank: int, windows: list[WindowRecord]) -> RankSummary:
        header = msgspec.structs.replace(own.header, rank=rank)
        return summarise(replace(own, header=header, notices=[*own.notices, no_pid], windows=windows))

    others = [other(1, [window]), other(2, [refused]), other(3, [refused])]
    assert of_others(own, others) == (
        ("ranks 1 to 3: nvml: its processes cannot be read",),
        ("rank 1: steps 20 to 22, rank1.1.pt.trace.json.gz", "ranks 2 and 3: steps 20 to 22, another tracer is in use"),
    )
    on_cpu = summarise(replace(own, notices=[no_pid], conditions={"device.type": "cpu"}))
    assert on_cpu.notices == []


@pytest.mark.parametrize(("synced", "is_own"), [(None, True), (0, True), (2, False)])
def test_logging_is_no_time_of_a_rank_s_own_where_ranks_exchange_what_they_log(
    synced: int | None, is_own: bool
) -> None:
    conditions = {"device.type": "cpu", "trainer.synced_values": synced}
    found = summarise(replace(journal(40), conditions=conditions)).own_phases
    assert ("logging" in found) == is_own
    assert "callbacks" in found


def test_windows_that_ranks_traced_at_the_same_steps_are_compared_in_the_report(tmp_path: Path) -> None:
    for rank in range(3):
        put(tmp_path, rank, 3)
    assert load_report(tmp_path).window_ranks is None
    write_windows(tmp_path, 3, late=2)
    report = load_report(tmp_path)
    assert report.window_ranks is not None
    assert [row.rank for row in report.window_ranks.ranks] == [0, 1, 2]
    assert report.window_ranks.late is not None
    assert report.window_ranks.late.rank == 2
    shown = io.StringIO()
    print_report(report, shown)
    for text in (shown.getvalue(), views.windows(report)):
        assert "all_reduce" in text
    (tmp_path / "rank1.1.collectives.json").write_bytes(b"{}")
    (tmp_path / "rank2.1.collectives.json").unlink()
    assert load_report(tmp_path).window_ranks is None


def test_notices_and_windows_of_other_ranks_are_in_the_report(tmp_path: Path) -> None:
    for rank in range(2):
        put(tmp_path, rank, 2)
    with (tmp_path / "rank1.jsonl").open("ab") as file:
        for record in (
            Notice(part="nvml", message="no driver"),
            WindowRecord(start_step=20, stop_step=22, file="rank1.1.pt.trace.json.gz"),
        ):
            file.write(msgspec.json.encode(record) + b"\n")
    report = load_report(tmp_path)
    assert "rank 1: nvml: no driver" in report.validity.caveats
    assert report.rank_windows == ("rank 1: steps 20 to 22, rank1.1.pt.trace.json.gz",)
    assert "rank1.1.pt.trace.json.gz" in views.windows(report)
    shown = io.StringIO()
    print_report(report, shown)
    assert "rank 1: steps 20 to 22, rank1.1.pt.trace.json.gz" in shown.getvalue()
