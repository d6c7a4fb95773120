"""What single operators did, per side, phase and shape, and names that the trace does not have."""

import msgspec
import pytest
from operator_events import calls, op, shaped
from tiny_traces import linked_trace

from lightning_gpuprof.errors import ArgumentError, GpuProfError
from lightning_gpuprof.trace.analyses.operators.op_analyse import op_analyse


def test_analysis_of_an_operator_has_an_entry_per_side_and_shape() -> None:
    entries = op_analyse(linked_trace(shaped()), "aten::mm")
    assert [(e.side, e.input_shape, e.occurrences, e.total_us, e.average_us) for e in entries] == [
        ("host", "64x64, 64x64", 2, 40, 20),
        ("device", "64x64, 64x64", 1, 4, 4),
        ("host", "8x64, 64x2", 1, 10, 10),
        ("device", "8x64, 64x2", 1, 1, 1),
    ]
    assert {(e.operator, e.phase) for e in entries} == {("aten::mm", "forward")}
    assert [e.device_total_us for e in entries] == [4, 4, 1, 1]
    assert entries[1].device_average_us == 2
    assert entries[2].flops_per_s == pytest.approx(2 * 8 * 64 * 2 / 1e-6)


def test_analysis_of_an_operator_without_shapes_or_launches() -> None:
    (entry,) = op_analyse(linked_trace([op("aten::mm", 0, 10)]), ["mm"])
    assert (entry.side, entry.input_shape, entry.dtype, entry.device_total_us) == ("host", None, None, None)
    assert entry.flops_per_call is None


def test_analysis_takes_names_with_and_without_namespace_once_each_in_their_order() -> None:
    found = linked_trace(calls())
    entries = op_analyse(found, ["linear", "aten::addmm", "aten::linear"])
    assert [e.operator for e in entries if e.side == "host"] == ["aten::linear", "aten::addmm"]


def test_analysis_of_the_device_holds_all_fields() -> None:
    found = op_analyse(linked_trace(shaped()), "aten::mm")
    assert len(found) == 4
    assert msgspec.to_builtins(found[1]) | {"flops_per_s": 0} == {
        "side": "device",
        "operator": "aten::mm",
        "phase": "forward",
        "input_shape": "64x64, 64x64",
        "dtype": "float32",
        "occurrences": 1,
        "total_us": 4.0,
        "average_us": 4.0,
        "device_total_us": 4.0,
        "device_average_us": 2.0,
        "flops_per_call": 2.0 * 64**3,
        "flops_per_s": 0,
    }


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("aten::adm", "aten::addmm"), ("Linear", "linear"), ("aten::Linear", "aten::linear"), ("add", "aten::addmm")],
)
def test_an_unknown_operator_is_named_with_what_is_near(name: str, nearest: str) -> None:
    with pytest.raises(ArgumentError, match="names must name operators in the trace, got") as caught:
        op_analyse(linked_trace(calls()), [name])
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, GpuProfError)
    assert repr(name) in str(caught.value)
    assert nearest in str(caught.value)


def test_unknown_operators_of_other_kinds() -> None:
    with pytest.raises(ArgumentError, match="Some in the trace: aten::"):
        op_analyse(linked_trace(calls()), "zzz")
    with pytest.raises(ArgumentError, match="The trace has no operators"):
        op_analyse(linked_trace([]), "aten::mm")
    with pytest.raises(ArgumentError, match="name at least one operator"):
        op_analyse(linked_trace(calls()), [])
    with pytest.raises(ArgumentError, match="got 'ProfilerStep#1'"):
        op_analyse(linked_trace([op("ProfilerStep#1", 0, 9), op("aten::mm", 1, 2)]), "ProfilerStep#1")
