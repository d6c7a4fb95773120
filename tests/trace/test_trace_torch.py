"""A trace that today's torch.profiler writes on a CPU."""

import json
from pathlib import Path

import pytest

from lightning_gpuprof.trace.facts import window_facts
from lightning_gpuprof.trace.reader import Trace

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("torch") / "cpu.json"
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 64)), batch_size=16)
    batches = iter(data)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=3, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
    ) as profiler:
        for _ in range(4):
            # torch's own range is a user_annotation inside of this one
            with torch._C._profiler._RecordFunctionFast("enumerate(DataLoader)#gpuprof.__next__"):
                (batch,) = next(batches)
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
            profiler.step()
    return path


def test_facts_of_a_recorded_window(recorded: Path) -> None:
    trace = Trace.read(recorded)
    facts = window_facts(trace, start_step=1, stop_step=3)
    events = json.loads(recorded.read_text())["traceEvents"]
    assert trace.how == "stream"
    assert facts.events == len(events)
    assert facts.bytes_json == recorded.stat().st_size
    assert len(facts.steps_us) == 3
    assert facts.devices == ()
    operators = {row.name for row in facts.top_operators}
    assert "aten::addmm" in operators
    assert not any(name.startswith("ProfilerStep") for name in operators)


def test_the_fetch_is_counted_once_though_two_ranges_name_it(recorded: Path) -> None:
    facts = window_facts(Trace.read(recorded), start_step=1, stop_step=3)
    fetches = [
        event
        for event in json.loads(recorded.read_text())["traceEvents"]
        if event.get("ph") == "X" and "DataLoader" in event["name"] and "__next__" in event["name"]
    ]
    own = sum(event["dur"] for event in fetches if "gpuprof" in event["name"])
    assert {event["cat"] for event in fetches} == {"cpu_op", "user_annotation"}
    assert facts.dataloader_us == pytest.approx(own, abs=0.01)
    assert 0 < facts.dataloader_us < sum(facts.steps_us)


def test_small_blocks_read_the_same(recorded: Path) -> None:
    facts = [window_facts(Trace.read(recorded, block_bytes=size), start_step=1, stop_step=3) for size in (999, 1 << 23)]
    assert facts[0] == facts[1]
