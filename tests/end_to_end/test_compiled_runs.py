"""Real runs of torch.compile with planted graph breaks and recompiles: what the report says of them."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from planted_runs import Planted, trainer_for
from python_process import run_python
from torch import nn

from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.capture.compilation import CompileSampler, compilations_now, counters_now
from lightning_gpuprof.model.compilation import CompileFacts
from lightning_gpuprof.model.journal import Compilation, CompilerCounts
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import compile_tables
from lightning_gpuprof.sinks.html import render_html

HERE = Path(__file__).name


class Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).relu()


class Net(Whole):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        print("", end="")  # the graph break
        return y.relu()


BREAK_LINE = next(n for n, line in enumerate(Path(__file__).read_text().splitlines(), 1) if "# the graph break" in line)


class Sizes:
    """Batches whose size grows by one at some of them."""

    def __init__(self, count: int, grows_at: tuple[int, ...]) -> None:
        self.count, self.grows_at = count, grows_at

    def __iter__(self) -> Iterator[torch.Tensor]:
        for index in range(self.count):
            yield torch.ones(4 + sum(index >= at for at in self.grows_at), 8)


def report_of(folder: Path, net: Any, *, count: int = 80, grows_at: tuple[int, ...] = ()) -> Report:
    torch.compiler.reset()
    model = Planted()
    model.layer = net
    profiler = GpuProfiler(dirpath=str(folder / "run"), reports=["json"], windows=[])
    trainer_for(folder, [profiler]).fit(model, Sizes(count, grows_at))
    assert profiler.report is not None
    return profiler.report


def compiled(report: Report) -> CompileFacts:
    assert report.compile is not None
    return report.compile


def test_planted_breaks_and_recompiles_are_found_at_their_line_and_step(tmp_path: Path) -> None:
    net = torch.compile(Net(), backend="eager", dynamic=False)
    report = report_of(tmp_path, net, grows_at=(40, 60))
    found = compiled(report)
    assert [(b.function, b.line, b.count) for b in found.graph_breaks] == [("forward", BREAK_LINE, 3)]
    assert found.graph_breaks[0].file.endswith(HERE)
    assert "print" in found.graph_breaks[0].reason
    assert {r.batch for r in found.recompiles} == {40, 60}
    assert {r.line for r in found.recompiles} >= {BREAK_LINE}
    assert all("size mismatch" in r.reason and r.steady for r in found.recompiles)
    assert (found.graphs, found.graph_break_count) == (6, 3)
    assert found.frames >= found.graphs  # print leads dynamo into functions without any tensor, too
    assert report.steps.labels["compiled"] == 3
    assert 0 < found.steady_recompile_s <= found.compile_s < report.wall.total_s
    sentence = compile_tables.summary(report)
    assert "4 recompiles from batch 40 on cost" in sentence
    assert f"{HERE}:{BREAK_LINE}" in sentence
    assert f"{HERE}:{BREAK_LINE}" in render_html(report)


def test_a_run_that_does_not_compile_says_nothing(tmp_path: Path) -> None:
    report = report_of(tmp_path, Whole(), count=20)
    assert report.compile is None
    assert compile_tables.summary(report) == ""


def test_what_was_compiled_before_is_another_runs(tmp_path: Path) -> None:
    first = torch.compile(Net(), backend="eager", dynamic=False)
    first(torch.ones(3, 8))
    report = report_of(tmp_path, torch.compile(Whole(), backend="eager", dynamic=False), count=20)
    found = compiled(report)
    assert (found.frames, found.graph_break_count, found.recompile_count) == (1, 0, 0)


def test_a_function_that_is_given_up_is_told(tmp_path: Path) -> None:
    net = torch.compile(Whole(), backend="eager", dynamic=False)
    limit = torch._dynamo.config.recompile_limit
    found = compiled(report_of(tmp_path, net, count=40, grows_at=tuple(range(1, limit + 4))))
    assert found.limit_hits == 1
    assert found.recompile_count >= limit - 1


def test_each_compilation_is_handed_over_once() -> None:
    torch.compiler.reset()
    sampler = CompileSampler(counters_now(), 0)
    sampler.sample(0)
    net = torch.compile(Whole(), backend="eager", dynamic=False)
    net(torch.ones(2, 8))
    first = sampler.sample(1)
    assert [type(record) for record in first] == [Compilation, CompilerCounts]
    assert sampler.sample(2) == []
    net(torch.ones(3, 8))
    second = sampler.close()
    assert isinstance(second[0], Compilation)
    assert second[0].reason
    assert isinstance(second[1], CompilerCounts)
    assert second[1].counts["graphs"] == 2


def test_more_than_dynamo_remembers_is_told() -> None:
    torch.compiler.reset()
    sampler = CompileSampler(None, 0)
    sampler.sample(0)
    notes = compilations_now()
    utils = sys.modules["torch._dynamo.utils"]
    assert notes
    for _ in range(70):
        utils._compilation_metrics.append(type(notes[-1])(**{**vars(notes[-1])}))  # type: ignore[attr-defined]
    counts = [record for record in sampler.sample(1) if isinstance(record, CompilerCounts)]
    assert counts[-1].lost == 1


def test_a_process_without_dynamo_is_left_without_it() -> None:
    code = (
        "import sys\n"
        "from lightning_gpuprof.capture.compilation import CompileSampler, counters_now\n"
        "sampler = CompileSampler(counters_now(), 0)\n"
        "sampler.open()\n"
        "print(list(sampler.sample(0)), list(sampler.close()), 'torch._dynamo' in sys.modules)\n"
    )
    assert run_python("-c", code).stdout.strip() == "[] [] False"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
def test_inductor_tells_its_time_its_backward_pass_and_its_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    first = compiled(report_of(tmp_path / "a", torch.compile(Whole(), dynamic=False), count=30))
    assert first.inductor_s is not None
    assert 0 < first.inductor_s <= first.compile_s * 1.01
    assert first.cache_misses > 0
    again = compiled(report_of(tmp_path / "b", torch.compile(Whole(), dynamic=False), count=30))
    assert again.cache_hits > 0
