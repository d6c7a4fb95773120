"""Operators by type, in detail and by shape: hand-made calls whose sums are written out."""

import pytest
from operator_events import AUTOGRAD, calls, launch, op, shaped, with_inputs
from tiny_traces import Json, linked_trace, span

from lightning_gpuprof.model.trace.operators import OperatorDetail, Operators
from lightning_gpuprof.trace.analyses.joins.input_shapes import shapes_and_types
from lightning_gpuprof.trace.analyses.operators.operators import operators, type_of
from lightning_gpuprof.trace.tables import Inputs


def operators_of(*events: Json) -> Operators:
    return operators(linked_trace(list(events)))


def detail(found: Operators, name: str, phase: str | None = None) -> OperatorDetail:
    (row,) = (row for row in found.operators if row.operator == name and phase in (None, row.phase))
    return row


def test_times_of_an_operator_with_and_without_what_is_inside_it() -> None:
    found = operators(linked_trace(calls()))
    linear, addmm = detail(found, "aten::linear"), detail(found, "aten::addmm")
    assert (linear.host_total_us, linear.host_self_us) == (40, 20)
    assert (linear.device_total_us, linear.device_self_us, linear.device_work) == (15, 3, 3)
    assert (addmm.host_total_us, addmm.host_self_us) == (20, 20)
    assert (addmm.device_total_us, addmm.device_self_us, addmm.device_average_us) == (12, 12, 12)


def test_device_self_times_sum_to_what_was_launched_in_operators_and_no_more() -> None:
    found = operators(linked_trace(calls()))
    assert (found.device_us, found.attributed_device_us) == (26, 15)
    assert sum(row.device_self_us or 0 for row in found.operators) == 15
    assert sum(row.device_self_us or 0 for row in found.types) == 15


def test_types_share_the_time_without_counting_any_twice() -> None:
    found = operators(linked_trace(calls()))
    assert [(row.type, row.device_self_us, row.host_self_us) for row in found.types] == [
        ("addmm", 12, 20),
        ("linear", 3, 20),
    ]
    assert [row.device_ratio for row in found.types] == [12 / 26, 3 / 26]
    assert sum(row.host_ratio or 0 for row in found.types) == 1


def test_a_call_inside_one_of_the_same_operator_adds_nothing_to_the_totals() -> None:
    found = operators(linked_trace([op("aten::to", 0, 50), op("aten::to", 10, 30), *launch(12, 1, 9)]))
    row = detail(found, "aten::to")
    assert (row.occurrences, row.host_total_us, row.host_self_us, row.host_average_us) == (2, 50, 50, 25)
    assert (row.device_total_us, row.device_self_us, row.device_work) == (9, 9, 1)


def test_an_operator_has_the_module_with_most_of_its_self_time_and_a_backward_that_of_its_forward() -> None:
    found = operators_of(
        op("nn.Module: encoder", 0, 100),
        op("nn.Module: encoder.layers.0", 0, 40),
        op("aten::mm", 10, 20, Sequence_number=1, Fwd_thread_id=0),
        op("aten::relu", 45, 10),
        op("aten::mm", 60, 30, Sequence_number=2, Fwd_thread_id=0),
        op("aten::add", 110, 5),
        op("MmBackward0", 200, 30, Sequence_number=1, Fwd_thread_id=1),
    )
    assert {row.operator: (row.module, row.other_modules) for row in found.operators} == {
        "aten::mm": ("encoder", 1),
        "aten::relu": ("encoder", 0),
        "aten::add": (None, 0),
        "MmBackward0": ("encoder.layers.0", 0),
    }


def test_of_several_modules_the_largest_sum_counts_and_not_the_longest_call() -> None:
    found = operators_of(
        *(op(f"nn.Module: {name}", 100 * at, 90) for at, name in enumerate("bac")),
        *(op("aten::mm", ts, dur) for ts, dur in [(0, 20), (30, 20), (110, 30), (210, 10)]),
        op("aten::relu", 230, 5),
    )
    assert {row.operator: (row.module, row.other_modules) for row in found.operators} == {
        "aten::mm": ("b", 2),
        "aten::relu": ("c", 0),
    }


def test_ranges_among_the_operators_are_looked_through() -> None:
    found = operators_of(
        op("ProfilerStep#3", 0, 100),
        op("mine::outer", 10, 40),
        op("Optimizer.step#SGD.step", 15, 30),
        op("aten::add_", 20, 10),
        *launch(22, 1, 5),
        *launch(40, 2, 7),
        op("enumerate(DataLoader)#_Iter.__next__", 60, 20),
        *launch(70, 3, 9),
    )
    assert {row.operator: (row.host_total_us, row.host_self_us) for row in found.operators} == {
        "mine::outer": (40, 30),
        "aten::add_": (10, 10),
    }
    assert detail(found, "mine::outer").device_self_us == 7
    assert (found.calls, found.host_self_us, found.device_us, found.attributed_device_us) == (2, 40, 21, 12)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("aten::mm", "mm"),
        ("fbgemm::permute_2D_sparse_data", "permute_2D_sparse_data"),
        ("autograd::engine::evaluate_function: AddmmBackward0", "AddmmBackward0"),
        ("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", "AccumulateGrad"),
        ("torch::autograd::CppNode<fbgemm::Lookup>", "torch::autograd::CppNode<fbgemm::Lookup>"),
        ("enumerate(DataLoader)#_Iter.__next__", "enumerate(DataLoader)#_Iter.__next__"),
        ("record_param_comms", "record_param_comms"),
    ],
)
def test_the_type_is_the_name_without_its_namespace(name: str, short: str) -> None:
    assert type_of(name) == short


def test_autograd_s_thread_and_nodes_are_backward_and_ranges_name_the_rest() -> None:
    found = operators_of(
        span("user_annotation", "ProfilerStep#1", 0, 300),
        span("user_annotation", "## forward ##", 10, 40),
        op("aten::mul", 12, 10),
        op("aten::mul", 60, 10),
        op(
            "autograd::engine::evaluate_function: MulBackward0",
            80,
            30,
            tid=AUTOGRAD,
            Sequence_number=4,
            Fwd_thread_id=1,
        ),
        op("aten::mul", 85, 10, tid=AUTOGRAD),
        op("aten::copy_", 120, 10, tid=AUTOGRAD),
        span("user_annotation", "Optimizer.step#SGD.step", 150, 40),
        op("aten::mul", 160, 10),
        span("user_annotation", "enumerate(DataLoader)#_Iter.__next__", 200, 40),
        op("aten::stack", 210, 10),
        op("enumerate(DataLoader)#gpuprof.__next__", 250, 40),
        op("aten::select", 260, 10),
    )
    phases = {(row.operator, row.phase) for row in found.operators}
    assert phases == {
        ("aten::mul", "forward"),
        ("aten::mul", "other"),
        ("autograd::engine::evaluate_function: MulBackward0", "backward"),
        ("aten::mul", "backward"),
        ("aten::copy_", "backward"),
        ("aten::mul", "optimizer"),
        ("aten::stack", "data_wait"),
        ("DataLoader.__next__", "data_wait"),
        ("aten::select", "data_wait"),
    }


def test_an_operator_whose_backward_ran_is_forward_also_outside_of_the_named_range() -> None:
    found = operators_of(
        span("user_annotation", "DistributedDataParallel.forward", 0, 10),
        op("aten::cross_entropy_loss", 20, 20, Sequence_number=9),
        op("aten::log_softmax", 25, 5),
        op("aten::item", 50, 5, Sequence_number=10),
        op("NllLossBackward0", 80, 30, tid=AUTOGRAD, Sequence_number=9, Fwd_thread_id=1),
    )
    assert detail(found, "aten::cross_entropy_loss").phase == "forward"
    assert detail(found, "aten::log_softmax").phase == "forward"
    assert detail(found, "aten::item").phase == "other"


def test_without_a_named_forward_operators_before_the_backward_of_a_step_are_forward() -> None:
    found = operators_of(
        span("user_annotation", "ProfilerStep#1", 0, 100),
        op("aten::first", 10, 5),
        op("AddBackward0", 20, 20, tid=AUTOGRAD),
        op("aten::after", 50, 5),
        span("user_annotation", "ProfilerStep#2", 100, 100),
        op("aten::second", 110, 5),
        op("aten::to", 130, 10),
        *launch(132, 1, 3, cat="gpu_memcpy", name="Memcpy HtoD (Pageable -> Device)"),
    )
    assert {row.operator: row.phase for row in found.operators} == {
        "aten::first": "forward",
        "AddBackward0": "backward",
        "aten::after": "other",
        "aten::second": "forward",
        "aten::to": "other",
    }


def test_backward_on_the_thread_that_called_it_is_told_by_autograd_s_nodes() -> None:
    found = operators_of(
        op("aten::mm", 0, 10),
        op("autograd::engine::evaluate_function: MmBackward0", 20, 20),
        op("aten::mm", 25, 10),
    )
    assert {row.phase for row in found.operators if row.operator == "aten::mm"} == {"forward", "backward"}


def test_by_shape_of_inputs_with_flops() -> None:
    found = operators(linked_trace(shaped()))
    assert found.shapes is not None
    square, thin = found.shapes
    assert (square.input_shape, square.dtype, square.occurrences) == ("64x64, 64x64", "float32", 2)
    assert (square.host_total_us, square.host_average_us, square.device_total_us) == (40, 20, 4)
    assert square.flops_per_call == 2 * 64**3
    assert square.flops_per_s == pytest.approx(2 * 64**3 / 4e-6)  # one of the two calls launched something
    assert (thin.input_shape, thin.dtype) == ("8x64, 64x2", "float16")


def test_calls_that_differ_in_numbers_only_are_one_row() -> None:
    events = [
        with_inputs(op("aten::add", 0, 10), [[4], [4], []], ["float", "float", "Scalar"], ["", "", "1"]),
        with_inputs(op("aten::add", 20, 10), [[4], [4], []], ["float", "float", "Scalar"], ["", "", "2"]),
    ]
    found = operators(linked_trace(events))
    assert found.shapes is not None
    (row,) = found.shapes
    assert (row.input_shape, row.occurrences, row.flops_per_call) == ("4, 4", 2, 4)


@pytest.mark.parametrize(
    ("shapes", "types", "text"),
    [
        ([[2, 3], [], []], ["float", "double", "Scalar"], ("2x3, ()", "float32, float64")),
        ([[[2, 3], [4]], []], ["TensorList", "Scalar"], ("[2x3, 4]", "")),
        ([[2, 3], []], [], ("2x3", "")),
        ([[], []], ["Scalar", ""], ("", "")),
        ([[0]], ["c10::BFloat16"], ("0", "bfloat16")),
        ([[5]], ["c10::Float8_e4m3fn"], ("5", "float8_e4m3fn")),
        ([], [], ("", "")),
    ],
)
def test_inputs_as_text(shapes: list[object], types: list[str], text: tuple[str, str]) -> None:
    assert shapes_and_types(Inputs(shapes=shapes, types=types, values=None)) == text


def test_most_shapes_bounds_the_rows_and_counts_the_rest() -> None:
    found = operators(linked_trace(shaped()), most_shapes=1)
    assert found.shapes is not None
    assert (len(found.shapes), found.shapes_left_out) == (1, 1)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("addmm", ["aten::addmm"]),
        ("ADDMM", ["aten::addmm"]),
        ("aten::l*", ["aten::linear"]),
        ("*add??", ["aten::addmm"]),
        ("add*", []),
        ("", ["aten::addmm", "aten::linear"]),
        ("nothing", []),
    ],
)
def test_operators_can_be_chosen_by_name(name: str, kept: list[str]) -> None:
    found = operators(linked_trace(calls()), name=name)
    assert [row.operator for row in found.operators] == kept
    assert [row.type for row in found.types] == [type_of(one) for one in kept]
    assert (found.filter, found.calls, found.device_us) == (name, 2, 26)


def test_the_share_of_chosen_operators_is_of_the_whole_window() -> None:
    (row,) = operators(linked_trace(calls()), name="addmm").types
    assert (row.device_ratio, row.host_ratio) == (12 / 26, 0.5)


def test_a_trace_without_device_work_has_host_times_only() -> None:
    found = operators(linked_trace([op("aten::mm", 0, 10)]))
    assert (found.device_us, found.attributed_device_us, found.shapes) == (None, None, None)
    (row,) = found.operators
    assert (row.device_total_us, row.device_self_us, row.device_average_us, row.device_work) == (None, None, None, 0)
    assert found.types[0].device_ratio is None


@pytest.mark.parametrize("events", [[], launch(5, 1, 10), [span("python_function", "f", 0, 5)]])
def test_a_trace_without_operators_has_none(events: list[Json]) -> None:
    found = operators(linked_trace(events))
    assert (found.calls, found.types, found.operators, found.shapes) == (0, (), (), None)
