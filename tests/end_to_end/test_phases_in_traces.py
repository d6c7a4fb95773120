"""A trace that this package recorded tells the phase of everything in its steps."""

import json
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from planted_runs import fit, quiet_profiler

from lightning_gpuprof import TraceConfig
from lightning_gpuprof.errors import TraceError
from lightning_gpuprof.model.phases import PHASES
from lightning_gpuprof.trace.analyses.code.attribution import attribution
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace
from lightning_gpuprof.trace.tables import ABSENT


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    """Other tests of this process may have compiled something, and then no module is named."""
    torch._dynamo.utils.counters.clear()


class Busy(pl.Callback):
    def on_train_batch_end(self, *args: Any) -> None:
        sum(range(1000))


def test_every_operator_in_a_step_of_ours_has_a_phase(tmp_path: Path) -> None:
    profiler = quiet_profiler(windows=(8, 10), trace=TraceConfig(record_shapes=True))
    report = fit(tmp_path, callbacks=[Busy()], profiler=profiler)
    assert profiler.folder is not None
    linked = LinkedTrace(Trace.read(profiler.folder / report.windows[0].file))
    assert linked.steps.names == ("ProfilerStep#8", "ProfilerStep#9", "ProfilerStep#10")
    named = {linked.trace.names[name] for name in linked.phases.ranges.name}
    assert "[pl][profile][Callback]Busy.on_train_batch_end" in named
    operators = linked.trace.cpu_op
    in_step = linked.steps.at(operators.start_ns) >= 0
    in_step &= ~linked.named(operators, lambda name: name.startswith("ProfilerStep"))
    phases = linked.phases.at(operators.start_ns, operators.thread)[in_step]
    assert {"data_wait", "forward", "backward", "optimizer"} <= {PHASES[phase] for phase in phases if phase != ABSENT}
    assert (phases != ABSENT).mean() > 0.95
    (layer,) = attribution(linked).modules
    assert (layer.path, layer.calls) == (("layer",), 3)
    assert layer.host_us > 0
    assert layer.backward_host_us > 0
    (row,) = profiler.modules()
    assert (row["path"], row["calls"]) == (("layer",), 3)


def test_with_stacks_modules_have_the_same_names_and_their_parameters(tmp_path: Path) -> None:
    profiler = quiet_profiler(windows=(8, 8), trace=TraceConfig(with_stack=True))
    fit(tmp_path, profiler=profiler)
    (row,) = profiler.modules()
    assert (row["path"], row["calls"], row["parameters"] > 0) == (("layer",), 1, True)


def test_with_stacks_no_module_is_left_out_for_the_number_of_modules(tmp_path: Path) -> None:
    profiler = quiet_profiler(windows=(8, 8), trace=TraceConfig(with_stack=True, modules=1))
    fit(tmp_path, profiler=profiler)
    assert [row["path"] for row in profiler.modules()] == [("layer",)]


def test_operators_of_the_last_window_are_analysed_from_the_callback(tmp_path: Path) -> None:
    profiler = quiet_profiler(windows=[4, 9], trace=TraceConfig(active=1, record_shapes=True, modules=0))
    with pytest.raises(TraceError, match="no trace found"):
        profiler.op_analyse("aten::addmm")
    report = fit(tmp_path, profiler=profiler)
    assert profiler.folder is not None
    assert not len(Trace.read(profiler.folder / report.windows[0].file).module_range)
    assert profiler.modules() == []
    rows = json.loads(profiler.op_analyse("aten::addmm"))
    assert rows
    assert {row["operator"] for row in rows} == {"aten::addmm"}
    assert rows[0]["phase"] == "forward"
    assert rows[0]["input_shape"]
    assert rows[0]["total_us"] > 0
    assert json.loads(profiler.op_analyse(["aten::addmm"], window=0))
    with pytest.raises(TraceError, match="window must be the number of one of 2 traces, from 0, got 2"):
        profiler.op_analyse("aten::addmm", window=2)
    with pytest.raises(ValueError, match="aten::addmm"):
        profiler.op_analyse("aten::admm")
