"""Traces, scalars and text of a real fit as TensorBoard itself reads them: its own loaders and a started server."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import lightning.pytorch as pl
import pytest
from logger_files import events_in
from parsed_page import Page
from planted_runs import Planted, Sleepy, fit, quiet_profiler
from started_tensorboard import Server, TwoRanks, breakdown, dashboard, started, step_lengths
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.data import DataLoader

from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.model.journal import DISTURBED, PROFILED
from lightning_gpuprof.model.phases import words_of
from lightning_gpuprof.model.report import Report

pytestmark = pytest.mark.timeout(600)

ITEM_S = 0.003
WINDOW = (10, 13)
STEPS = 60

PARAMETER_BYTES = 4 * (64 * 10 + 10)


class Recorded:
    """One fit with a TensorBoard logger, a window and a dataset of 3 ms an item."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.profiler = GpuProfiler(windows=[WINDOW], reports=["tensorboard", "json"])
        self.report: Report = fit(
            folder,
            Planted(),
            DataLoader(Sleepy(STEPS, ITEM_S), batch_size=1),
            profiler=self.profiler,
            logger=pl.loggers.TensorBoardLogger(folder, name="run", version=0),
            log_every_n_steps=10,
        )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(tmp_path_factory.mktemp("tensorboard"))


@pytest.fixture(scope="module")
def events(recorded: Recorded) -> EventAccumulator:
    return events_in(recorded.folder / "run" / "version_0")


def test_the_window_is_recorded_with_its_data_loading(recorded: Recorded) -> None:
    (window,) = recorded.report.windows
    assert window.problem == ""
    assert (window.start_step, window.stop_step) == WINDOW
    assert len(window.steps_us) == 4
    assert all(us >= ITEM_S * 1e6 for us in window.steps_us)
    assert window.dataloader_us >= 4 * ITEM_S * 1e6
    assert window.events > 100
    assert window.stop_cost_ms is not None
    names = sorted(p.name for p in recorded.profiler.folder.iterdir())
    assert [n for n in names if n.endswith(".pt.trace.json.gz")] == [window.file]
    assert not [n for n in names if n.endswith((".plain.json", ".tmp"))]


def test_steps_under_the_window_and_beside_its_analysis_are_marked_and_no_others(recorded: Recorded) -> None:
    assert recorded.profiler.folder is not None
    steps = read_journal(recorded.profiler.folder / "rank0.jsonl").steps
    # Two steps of warm-up before; the step after begins with stopping the trace.
    assert list(steps.batch[(steps.flags & PROFILED) != 0]) == list(range(8, 15))
    beside = list(steps.batch[(steps.flags & DISTURBED) != 0])
    assert beside == list(range(14, 14 + len(beside)))


def test_scalars_carry_units_and_lie_on_the_trainers_own_steps(events: EventAccumulator) -> None:
    tags = events.Tags()["scalars"]
    own = [tag for tag in tags if tag.startswith("gpuprof/")]
    assert {"gpuprof/step_ms", "gpuprof/data_wait_ms", "gpuprof/forward_ms", "gpuprof/samples_per_s"} <= set(own)
    live_steps = [e.step for e in events.Scalars("gpuprof/step_ms")]
    trainer_steps = [e.step for e in events.Scalars("loss")]
    assert live_steps[: len(trainer_steps)] == trainer_steps[: len(live_steps)]
    assert len(live_steps) >= 5
    waits = [e.value for e in events.Scalars("gpuprof/data_wait_ms")]
    assert all(value >= ITEM_S * 1e3 for value in waits)


def test_the_diagnosis_is_in_the_text_tab(events: EventAccumulator) -> None:
    tags = events.Tags()["tensors"]
    assert any(tag.startswith("gpuprof/report") for tag in tags)
    text = (
        events.Tensors(next(t for t in tags if t.startswith("gpuprof/report")))[0].tensor_proto.string_val[0].decode()
    )
    assert "|" in text
    assert "forward" in text


def test_the_profiler_tabs_own_loader_sees_the_data_loading(recorded: Recorded) -> None:
    from torch_tb_profiler import io
    from torch_tb_profiler.profiler.data import RunProfileData
    from torch_tb_profiler.profiler.node import OperatorNode  # noqa: F401 - importing shows that the package is whole
    from torch_tb_profiler.profiler.overall_parser import ProfileRole

    assert recorded.profiler.folder is not None
    file = recorded.profiler.folder / recorded.report.windows[0].file
    data = RunProfileData.parse("rank0", 1, str(file), io.Cache())
    assert data.avg_costs.costs[ProfileRole.DataLoader] >= ITEM_S * 1e6
    assert data.avg_costs.costs[ProfileRole.DataLoader] <= data.avg_costs.costs[ProfileRole.Total]


@pytest.fixture(scope="module")
def two_ranks(recorded: Recorded) -> TwoRanks:
    return TwoRanks(recorded.folder)


@pytest.fixture(scope="module")
def server(recorded: Recorded, two_ranks: TwoRanks) -> Iterator[Server]:
    """TensorBoard over the folder of both runs, once it has loaded them."""
    with started(recorded.folder) as found:
        found.profiler("runs", until=lambda runs: not runs["loading"] and len(runs["runs"]) == 2)
        found.get("text/tags", until=lambda runs: {RUN, RANKS_RUN} <= runs.keys())  # the last thing in a run's file
        yield found


RUN, RANKS_RUN = "run/version_0", "two_ranks/version_0"


@pytest.mark.slow
def test_the_profiler_tab_splits_each_step_of_the_window(server: Server, recorded: Recorded) -> None:
    here = {"run": f"{RUN}/gpuprof", "worker": "rank0", "span": 1}
    assert server.profiler("views", run=here["run"]) == ["Overview", "Operator", "Trace"]
    assert server.profiler("workers", run=here["run"], view="Overview") == ["rank0"]
    assert server.profiler("spans", run=here["run"], worker="rank0") == ["1"]
    overview = server.profiler("overview", **here, view="Overview")
    steps = breakdown(overview)
    assert list(steps) == [str(step) for step in range(WINDOW[0], WINDOW[1] + 1)]
    assert all(parts.keys() == {"DataLoader", "CPU Exec", "Other"} for parts in steps.values())
    assert all(parts["DataLoader"] >= ITEM_S * 1e6 for parts in steps.values())
    assert all(parts["CPU Exec"] > 0 for parts in steps.values())
    sums = [sum(parts.values()) for parts in steps.values()]
    assert sums == pytest.approx(recorded.report.windows[0].steps_us, rel=0.01)
    assert "DataLoader" in overview["recommendations"]
    assert server.profiler("trace", **here)["traceEvents"]
    operators = server.profiler("operation/table", **here, group_by="Operation")
    assert "aten::linear" in {row["name"] for row in operators["data"]}


@pytest.mark.slow
def test_the_profiler_tab_holds_the_ranks_of_a_run_side_by_side(server: Server, two_ranks: TwoRanks) -> None:
    run = f"{RANKS_RUN}/gpuprof"
    assert set(server.profiler("views", run=run)) == {
        "Overview",
        "Operator",
        "Trace",
        "Distributed",
        "Memory",
        "Module",
    }
    assert server.profiler("workers", run=run, view="Overview") == ["rank0", "rank1"]
    for rank in (0, 1):
        assert server.profiler("spans", run=run, worker=f"rank{rank}") == ["1", "2"]
        steps = breakdown(server.profiler("overview", run=run, worker=f"rank{rank}", span=1, view="Overview"))
        lengths = step_lengths(two_ranks.trace(rank, 1))
        assert {step: sum(parts.values()) for step, parts in steps.items()} == pytest.approx(lengths, rel=0.01)
        assert sum(parts["Communication"] for parts in steps.values()) > 0
        assert all(parts["DataLoader"] > 0 for parts in steps.values())
    here = {"run": run, "worker": "All", "span": 1, "view": "Distributed"}
    overlap = server.profiler("distributed/overlap", **here)
    assert overlap["data"]["all"].keys() == {"rank0", "rank1"}
    assert all(overlapping + communication > 0 for _, overlapping, communication, _ in overlap["data"]["all"].values())
    assert server.profiler("distributed/waittime", **here)["data"]["all"].keys() == {"rank0", "rank1"}
    collectives = server.profiler("distributed/commops", **here)["data"]["rank0"]
    calls = {row[0]: row[1:4] for row in collectives["rows"]}
    count, total, each = calls["gloo:all_reduce"]
    assert 1 <= count <= 2  # that of the last step may end after the window
    assert (total, each) == (count * PARAMETER_BYTES, PARAMETER_BYTES)


@pytest.mark.slow
def test_the_profiler_tab_loads_memory_and_modules_of_a_window_that_has_them(server: Server) -> None:
    here = {"run": f"{RANKS_RUN}/gpuprof", "worker": "rank0", "span": 2}
    memory = server.profiler("memory", **here)
    assert any(row for rows in memory["rows"].values() for row in rows)
    assert server.profiler("memory_curve", **here)["rows"]
    modules = json.dumps(server.profiler("module", **here))
    assert "Net" in modules
    assert "Linear" in modules


@pytest.mark.slow
def test_the_custom_scalars_tab_draws_our_numbers_by_group(server: Server, events: EventAccumulator) -> None:
    groups = dashboard(server, RUN)
    assert list(groups) == ["gpuprof: step", "gpuprof: host", "gpuprof: diagnosis, at the end of the run"]
    step, _, diagnosis = groups.values()
    phases = step["step and its phases (ms)"]
    assert {"gpuprof/step_ms", "gpuprof/data_wait_ms", "gpuprof/forward_ms", "gpuprof/backward_ms"} <= phases.keys()
    assert not any(name.startswith("gpuprof/final/") for name in phases)
    assert step["waiting for data vs. step time (ms)"].keys() == {"gpuprof/data_wait_ms", "gpuprof/step_ms"}
    assert step["throughput (samples/s)"].keys() == {"gpuprof/samples_per_s"}
    assert phases["gpuprof/step_ms"] == [(e.step, pytest.approx(e.value)) for e in events.Scalars("gpuprof/step_ms")]
    assert diagnosis["step time (ms)"].keys() == {"gpuprof/final/step_time_median_ms", "gpuprof/final/step_time_p95_ms"}
    assert [step for step, _ in diagnosis["findings"]["gpuprof/final/findings_count"]] == [STEPS - 1]
    # Another run draws in the same charts, because TensorBoard merges the layouts of its runs by name.
    assert dashboard(server, RANKS_RUN)["gpuprof: step"]["step and its phases (ms)"].keys() >= {"gpuprof/step_ms"}


@pytest.mark.slow
def test_the_text_tab_shows_the_diagnosis_with_its_tables(server: Server, recorded: Recorded) -> None:
    tags = server.get("text/tags")[RUN]
    (tag,) = [tag for tag in tags if tag.startswith("gpuprof/report")]
    (shown,) = server.get("text/text", run=RUN, tag=tag)
    assert shown["step"] == STEPS - 1
    page = Page(shown["text"])
    around, *tables = page.tables
    assert around == [1]  # TensorBoard's own, which a text of ``add_text`` is the one cell of
    assert len(tables) >= 5
    assert [rows for rows in tables if len(rows) < 2 or len(set(rows)) > 1] == []
    assert "|" not in page.text  # a table that does not render is a paragraph of bars
    # What was written before the end need not say all that the last report says.
    assert re.search(r"Verdict: [a-z-]+", page.text)
    assert any(finding.rule in page.text for finding in recorded.report.findings)
    assert all(words_of(row.phase) in page.text for row in recorded.report.phases if row.share > 0.01)


@pytest.mark.slow
def test_a_started_tensorboard_serves_scalars(server: Server) -> None:
    tags = server.get("scalars/tags")
    assert "gpuprof/step_ms" in tags[RUN]
    assert "gpuprof/step_ms" in tags[RANKS_RUN]


@pytest.mark.slow
def test_of_several_ranks_only_the_first_writes_to_the_logger(two_ranks: TwoRanks) -> None:
    assert len(list(two_ranks.run.glob("events.out.tfevents.*"))) == 1
    assert {path.name for path in two_ranks.run.glob("gpuprof/*.jsonl")} == {"rank0.jsonl", "rank1.jsonl"}


def test_a_layout_of_the_users_own_stays(tmp_path: Path) -> None:
    theirs = {"mine": {"loss": ["Multiline", ["loss"]]}}
    logger = pl.loggers.TensorBoardLogger(tmp_path, name="run", version=0)
    logger.experiment.add_custom_scalars(theirs)
    fit(tmp_path, logger=logger, profiler=quiet_profiler(reports=["json", "tensorboard"]), log_every_n_steps=5)
    (layout,) = events_in(Path(logger.log_dir)).Tensors("custom_scalars__config__")
    assert b"mine" in layout.tensor_proto.string_val[0]
    assert b"gpuprof" not in layout.tensor_proto.string_val[0]
