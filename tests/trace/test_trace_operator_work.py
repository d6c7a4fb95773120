"""From recorded shapes to work, against torch's own counter and against shapes that a real profiler records."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lightning_gpuprof.trace.analyses.roofline.operator_work import Work, work_of

aten = torch.ops.aten
TYPE_NAMES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "c10::Half",
    torch.bfloat16: "c10::BFloat16",
    torch.float8_e4m3fn: "c10::Float8_e4m3fn",
    torch.int64: "long int",
    torch.int32: "int",
    torch.int8: "signed char",
    torch.bool: "bool",
}


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def recorded(*arguments: Any) -> tuple[list[Any], list[str], list[str]]:
    """Shapes, types and values of arguments as the profiler writes them."""
    shapes: list[Any] = []
    types: list[str] = []
    values: list[str] = []
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            shapes.append(list(argument.shape))
            types.append(TYPE_NAMES[argument.dtype])
            values.append("")
        elif isinstance(argument, list) and argument and isinstance(argument[0], torch.Tensor):
            shapes.append([list(one.shape) for one in argument])
            types.append("TensorList")
            values.append("")
        else:
            shapes.append([])
            types.append("" if argument is None else "ScalarList" if isinstance(argument, list) else "Scalar")
            values.append("" if argument is None else str(argument))
    return shapes, types, values


def work(name: str, *arguments: Any) -> Work:
    found = work_of(f"aten::{name}", *recorded(*arguments))
    assert found is not None, name
    return found


def counted(operator: Any, *arguments: Any, **named: Any) -> int:
    with FlopCounterMode(display=False) as counter:
        operator(*arguments, **named)
    return int(counter.get_total_flops())


@pytest.mark.parametrize(("m", "k", "n"), [(3, 5, 7), (128, 64, 1), (1, 1, 1)])
def test_matrix_products_cost_what_torch_counts(m: int, k: int, n: int) -> None:
    a, b = meta(m, k), meta(k, n)
    assert work("mm", a, b).flops == counted(aten.mm, a, b)
    for bias in (meta(n), meta(m, n)):
        assert work("addmm", bias, a, b, 1, 1).flops == counted(aten.addmm, bias, a, b)
    batched = meta(4, m, k), meta(4, k, n)
    assert work("bmm", *batched).flops == counted(aten.bmm, *batched)
    total = meta(4, m, n)
    assert work("baddbmm", total, *batched, 1, 1).flops == counted(aten.baddbmm, total, *batched)


def test_bytes_of_a_product_are_each_operand_once_and_the_result_once() -> None:
    a, b = meta(3, 5, dtype=torch.bfloat16), meta(5, 7, dtype=torch.bfloat16)
    assert work("mm", a, b) == Work(flops=2 * 3 * 5 * 7, bytes=2 * (15 + 35 + 21), dtype="bf16", kind="gemm")
    bias = meta(7, dtype=torch.bfloat16)
    assert work("addmm", bias, a, b, 1, 1).bytes == 2 * (7 + 15 + 35 + 21)


def test_products_in_eight_bits() -> None:
    scale = meta()
    a, b = meta(16, 32, dtype=torch.float8_e4m3fn), meta(32, 64, dtype=torch.float8_e4m3fn)
    found = work("_scaled_mm", a, b, scale, scale, None, None, None, False)
    assert (found.flops, found.dtype) == (2 * 16 * 32 * 64, "fp8")
    a, b = meta(16, 32, dtype=torch.int8), meta(32, 64, dtype=torch.int8)
    found = work("_int_mm", a, b)
    assert (found.bytes, found.dtype) == (16 * 32 + 32 * 64 + 4 * 16 * 64, "int8")


def test_products_with_vectors() -> None:
    matrix, vector = meta(6, 4), meta(4)
    assert work("mv", matrix, vector) == Work(flops=48, bytes=4 * (24 + 4 + 6), dtype="fp32", kind="gemm")
    assert work("addmv", meta(6), matrix, vector, 1, 1).flops == 48
    assert work("dot", vector, vector) == Work(flops=8, bytes=4 * (4 + 4 + 1), dtype="fp32", kind="gemm")


# input, weight, stride, padding, dilation, transposed, output padding, groups
CONVOLUTIONS = {
    "plain": ((2, 3, 9, 8), (4, 3, 3, 3), [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    "strided and padded": ((2, 3, 9, 8), (4, 3, 3, 2), [2, 3], [1, 0], [1, 1], False, [0, 0], 1),
    "dilated": ((2, 3, 19, 18), (4, 3, 3, 3), [1, 1], [2, 2], [2, 3], False, [0, 0], 1),
    "grouped": ((2, 6, 9, 8), (4, 3, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 2),
    "depthwise": ((2, 6, 9, 8), (6, 1, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 6),
    "transposed": ((2, 3, 5, 6), (3, 4, 3, 3), [2, 2], [1, 1], [1, 1], True, [1, 1], 1),
    "transposed and grouped": ((2, 6, 5, 6), (6, 2, 3, 3), [2, 2], [0, 0], [1, 1], True, [0, 0], 3),
    "one dimension": ((2, 3, 50), (4, 3, 5), [2], [2], [1], False, [0], 1),
    "three dimensions": ((1, 2, 5, 6, 7), (4, 2, 2, 3, 2), [1, 2, 1], [0, 1, 0], [1, 1, 1], False, [0, 0, 0], 1),
}


@pytest.fixture(params=CONVOLUTIONS)
def convolution(request: pytest.FixtureRequest) -> tuple[Any, ...]:
    x, weight, *rest = CONVOLUTIONS[request.param]
    return meta(*x), meta(*weight), None, *rest


def test_convolutions_cost_what_torch_counts(convolution: tuple[Any, ...]) -> None:
    found = work("convolution_overrideable", *convolution)
    out = aten.convolution(*convolution)
    assert found.flops == counted(aten.convolution, *convolution)
    assert found.bytes == 4 * (convolution[0].numel() + convolution[1].numel() + out.numel())


def test_all_backends_of_a_convolution_cost_the_same(convolution: tuple[Any, ...]) -> None:
    x, weight, _, stride, padding, dilation, transposed, extra, groups = convolution
    expected = work("convolution_overrideable", *convolution)
    if transposed:
        assert work("cudnn_convolution_transpose", x, weight, padding, extra, stride, dilation, groups) == expected
        assert (
            work("miopen_convolution_transpose", x, weight, None, padding, extra, stride, dilation, groups) == expected
        )
        return
    assert work("cudnn_convolution", x, weight, padding, stride, dilation, groups, False, False, True) == expected
    assert work("miopen_convolution", x, weight, None, padding, stride, dilation, groups, False, False) == expected
    assert work("mkldnn_convolution", x, weight, None, padding, stride, dilation, groups) == expected
    assert work("cudnn_convolution_relu", x, weight, None, stride, padding, dilation, groups) == expected
    if groups in (1, x.shape[1]):
        kernel = list(weight.shape[2:])
        assert work("_conv_depthwise2d", x, weight, kernel, None, stride, padding, dilation) == expected


@pytest.mark.parametrize("mask", [[True, True, False], [True, False, False], [False, True, True]])
def test_backward_of_a_convolution_costs_what_torch_counts(convolution: tuple[Any, ...], mask: list[bool]) -> None:
    x, weight, _, *rest = convolution
    groups = rest[-1]
    gradient = aten.convolution(*convolution)
    arguments = (gradient, x, weight, [weight.shape[0]], *rest)

    def torch_counts(asked: list[bool]) -> int:
        return counted(aten.convolution_backward, *arguments, asked)

    of_input = torch_counts([True, False, False]) if mask[0] else 0
    # torch counts the gradient of a weight as if it had one group
    of_weight = torch_counts([False, True, False]) // groups if mask[1] else 0
    found = work("convolution_backward", *arguments, mask)
    assert found.flops == of_input + of_weight
    forward = work("convolution_overrideable", *convolution)
    assert found.flops == (mask[0] + mask[1]) * forward.flops
    sizes = 4 * (x.numel() + weight.numel())
    assert found.bytes == 4 * gradient.numel() + (mask[0] + mask[1]) * sizes


def test_without_values_a_convolution_is_unknown_and_its_backward_is_bounded(convolution: tuple[Any, ...]) -> None:
    x, weight, _, *rest = convolution
    shapes, types, _ = recorded(*convolution)
    assert work_of("aten::convolution_overrideable", shapes, types) is None
    shapes, types, values = recorded(aten.convolution(*convolution), x, weight, [1], *rest, [True, True, False])
    bound = work_of("aten::convolution_backward", shapes, types)
    whole = work_of("aten::convolution_backward", shapes, types, values)
    assert 0 < bound.flops <= whole.flops // 2
    assert bound.bytes is not None
    assert whole.bytes is not None
    assert 0 < bound.bytes < whole.bytes


def test_the_separate_backward_operators_of_old_traces() -> None:
    x, weight, gradient = [32, 64, 56, 56], [128, 64, 3, 3], [32, 128, 28, 28]
    one_pass = 2 * 32 * 28 * 28 * 128 * 64 * 9
    types = ["float", "float", "float"]
    both = work_of("aten::cudnn_convolution_backward", [x, gradient, weight, *[[]] * 8], [*types, *["Int"] * 8])
    assert both.flops == one_pass
    of_input = work_of("aten::cudnn_convolution_backward_input", [[], gradient, weight], ["GenericList", *types[1:]])
    assert of_input.flops == one_pass
    assert work_of("aten::cudnn_convolution_backward_weight", [[], gradient, x], ["GenericList", *types[1:]]) is None


ATTENTIONS = [((2, 3, 16, 8), (2, 3, 16, 8)), ((1, 4, 10, 64), (1, 4, 24, 64))]


def transposed(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [tensor.transpose(1, 2) for tensor in tensors]


@pytest.mark.parametrize(("query", "key"), ATTENTIONS)
def test_attention_costs_what_torch_counts(query: tuple[int, ...], key: tuple[int, ...]) -> None:
    q, k, v = (meta(*shape, dtype=torch.float16) for shape in (query, key, key))
    expected = counted(aten._scaled_dot_product_flash_attention, q, k, v, 0.0, False, False, scale=None)
    forward = work("_scaled_dot_product_flash_attention", q, k, v, 0.0, False, False, None)
    assert forward.flops == expected
    assert forward.bytes == 2 * (2 * q.numel() + 2 * k.numel())
    assert (forward.dtype, forward.kind) == ("fp16", "attention")
    same = [
        work("_scaled_dot_product_efficient_attention", q, k, v, None, True, 0.0, False, None),
        work("_scaled_dot_product_cudnn_attention", q, k, v, None, True, 0.0, False, False, None),
        work("_scaled_dot_product_cudnn_attention", q, k, v, 0.0, False, False, 0.125),  # torch 2.4
        work("_flash_attention_forward", *transposed(q, k, v), None, None, 10, 24, 0.0, False, False, 0.125),
        work("_efficient_attention_forward", *transposed(q, k, v), None, None, None, None, None, 0.0, 0, True),
    ]
    assert same == [forward] * len(same)


@pytest.mark.parametrize(("query", "key"), ATTENTIONS)
def test_backward_of_attention_costs_two_and_a_half_times_the_forward(
    query: tuple[int, ...], key: tuple[int, ...]
) -> None:
    q, k, v = (meta(*shape, dtype=torch.float16) for shape in (query, key, key))
    sums = meta(*query[:3])
    seed = meta(dtype=torch.int64)
    rest = (None, None, query[2], key[2], 0.0)
    forward = work("_scaled_dot_product_flash_attention", q, k, v, 0.0, False, False, None)
    name = "_scaled_dot_product_flash_attention_backward"
    found = work(name, q, q, k, v, q, sums, *rest, False, seed, seed, None)
    assert found.flops == 2.5 * forward.flops
    assert found.flops == counted(getattr(aten, name), q, q, k, v, q, sums, *rest, False, seed, seed)
    inside = work("_flash_attention_backward", *transposed(q, q, k, v, q), sums, *rest, False, seed, seed)
    assert inside == found
    name = "_scaled_dot_product_efficient_attention_backward"
    assert work(name, q, q, k, v, None, q, sums, seed, seed, 0.0, [True] * 4, False, None) == found


def test_causal_attention_counts_the_pairs_that_are_seen() -> None:
    length = 16
    q = meta(2, 3, length, 8, dtype=torch.float16)
    whole = work("_scaled_dot_product_flash_attention", q, q, q, 0.0, False, False, None)
    causal = work("_scaled_dot_product_flash_attention", q, q, q, 0.0, True, False, None)
    seen = torch.ones(length, length).tril().sum().item()
    assert causal.flops == whole.flops * seen / length**2
    assert causal.bytes == whole.bytes
    shapes, types, _ = recorded(q, q, q, 0.0, True, False, None)
    assert work_of("aten::_scaled_dot_product_flash_attention", shapes, types) == causal, "unknown: the lower one"


def test_fewer_heads_of_keys_are_read_once_and_computed_for_every_query() -> None:
    q, kv = meta(1, 16, 2, 8, dtype=torch.float16), meta(1, 16, 1, 8, dtype=torch.float16)
    found = work_of("flash_attn::_flash_attn_forward", *recorded(q, kv, kv, 0.0, 0.35, False, -1, -1, 0.0, None, False))
    assert found.flops == 4 * 2 * 16 * 16 * 8
    assert found.bytes == 2 * (2 * q.numel() + 2 * kv.numel())


def test_packed_and_windowed_attention_is_unknown() -> None:
    packed = meta(100, 2, 8, dtype=torch.float16)
    lengths = meta(5, dtype=torch.int32)
    arguments = recorded(packed, packed, packed, lengths, lengths, 30, 30, 0.0, False, False, None)
    assert work_of("aten::_flash_attention_forward", *arguments) is None
    one = meta(1, 100, 2, 8, dtype=torch.float16)
    arguments = recorded(one, one, one, None, lengths, lengths, 30, 30, 0.0, 0, False)
    assert work_of("aten::_efficient_attention_forward", *arguments) is None
    arguments = recorded(one, one, one, 0.0, 0.35, True, 16, 0)
    assert work_of("flash_attn::_flash_attn_forward", *arguments) is None


def test_norms_read_and_write_each_tensor_once() -> None:
    x, weight = meta(8, 10, 64, dtype=torch.bfloat16), meta(64, dtype=torch.bfloat16)
    found = work("native_layer_norm", x, [64], weight, weight, 1e-5)
    assert found == Work(flops=5120, bytes=2 * (2 * 5120 + 2 * 64), dtype="bf16", kind="norm/reduction")
    assert work("native_layer_norm", x, [64], None, None, 1e-5).bytes == 2 * 2 * 5120
    rows = meta(8, 10, 1)
    arguments = (x, x, [64], rows, rows, weight, weight)
    whole = work("native_layer_norm_backward", *arguments, [True, True, True])
    assert whole.bytes == 2 * (3 * 5120 + 64 + 2 * 64) + 4 * 2 * 80
    without = work("native_layer_norm_backward", *arguments, [False, True, True])
    assert without.bytes == whole.bytes - 2 * 5120
    image, channels = meta(2, 16, 7, 7), meta(16)
    found = work("cudnn_batch_norm", image, channels, channels, channels, channels, True, 0.1, 1e-5)
    assert found.bytes == 4 * (2 * image.numel() + 2 * 16)
    arguments = (image, image, channels, channels, channels, channels, channels)
    cudnn = work("cudnn_batch_norm_backward", *arguments, 1e-5, meta(0, dtype=torch.int8))
    native = work("native_batch_norm_backward", *arguments, True, 1e-5, [True, True, True])
    assert cudnn.bytes == native.bytes == 4 * (3 * image.numel() + 5 * 16)
    assert work("_softmax", x, -1, False).bytes == 2 * 2 * 5120
    assert work("_softmax_backward_data", x, x, -1, torch.bfloat16).bytes == 3 * 2 * 5120


@pytest.mark.parametrize(
    ("name", "arguments", "elements", "size"),
    [
        ("add", (meta(4, 5), meta(4, 5), 1), 20, 4 * 60),
        ("add", (meta(4, 5), meta(5), 1), 20, 4 * 45),
        ("add", (meta(4, 1), meta(1, 5), 1), 20, 4 * (4 + 5 + 20)),
        ("add", (meta(4, 5), 1.5, 1), 20, 4 * 40),
        ("add_", (meta(4, 5), meta(5), 1), 20, 4 * 45),
        ("mul", (meta(4, 5, dtype=torch.bfloat16), meta(4, 5)), 20, 20 * (2 + 4 + 4)),
        ("mul", (meta(4, 5, dtype=torch.bfloat16), meta(dtype=torch.float64)), 20, 20 * (2 + 2) + 8),
        ("mul", (meta(4, dtype=torch.int64), meta(4, dtype=torch.float16)), 4, 4 * (8 + 2 + 2)),
        ("div", (meta(4, dtype=torch.int64), meta(4, dtype=torch.int64)), 4, 4 * (8 + 8 + 4)),
        ("eq", (meta(4, 5), meta(4, 5)), 20, 20 * (4 + 4 + 1)),
        ("where", (meta(4, 5, dtype=torch.bool), meta(4, 5), meta()), 20, 20 * (1 + 4 + 4) + 4),
        ("relu", (meta(4, 5, dtype=torch.float16),), 20, 80),
        ("gelu", (meta(4, 5), "none"), 20, 160),
        ("threshold_backward", (meta(4, 5), meta(4, 5), 0), 20, 240),
        ("fill_", (meta(4, 5), 0), 20, 80),
        ("copy_", (meta(4, 5, dtype=torch.bfloat16), meta(4, 5), False), 0, 20 * (2 + 4)),
        ("native_dropout", (meta(4, 5, dtype=torch.float16), 0.1, True), 20, 20 * (2 + 2 + 1)),
        ("sum", (meta(4, 5), [1], False, None), 20, 80),
        ("embedding", (meta(100, 8), meta(3, 4, dtype=torch.int64), -1, False, False), 0, 12 * 8 + 12 * 8 * 4),
        (
            "embedding_dense_backward",
            (meta(3, 4, 8), meta(3, 4, dtype=torch.int64), 100, -1, False),
            96,
            96 * 4 + 12 * 8 + 800 * 4,
        ),
    ],
)
def test_passes_over_memory(name: str, arguments: tuple[Any, ...], elements: int, size: int) -> None:
    found = work(name, *arguments)
    assert (found.flops, found.bytes) == (elements, size)


def test_lists_of_tensors_have_elements_and_no_bytes() -> None:
    parameters = [meta(128, 128), meta(128)]
    found = work("_foreach_add_", parameters, parameters, -0.001)
    assert found == Work(flops=128 * 128 + 128, bytes=None, dtype=None, kind="elementwise")
    assert work("_fused_adamw_", parameters, parameters, parameters, parameters).kind == "optimizer"
    assert work("cat", parameters[:1] * 2, 0).kind == "copy"


def test_without_types_there_are_flops_and_no_bytes() -> None:
    found = work_of("aten::addmm", [[1000], [32, 2048], [2048, 1000], [], []], [])
    assert found == Work(flops=2 * 32 * 2048 * 1000, bytes=None, dtype=None, kind="gemm")
    found = work_of("aten::add", [[32, 64], [32, 64], []], None)
    assert found == Work(flops=32 * 64, bytes=None, dtype=None, kind="elementwise")


@pytest.mark.parametrize(
    "name",
    [
        "linear",
        "matmul",
        "einsum",
        "conv2d",
        "convolution",
        "_convolution",
        "layer_norm",
        "dropout",
        "to",
        "clone",
        "view",
    ],
)
def test_an_operator_that_calls_another_one_is_not_counted(name: str) -> None:
    assert work_of(f"aten::{name}", *recorded(meta(4, 4), meta(4, 4))) is None


@pytest.mark.parametrize(
    ("name", "shapes", "types", "values"),
    [
        ("aten::mm", None, None, None),
        ("aten::mm", [], [], []),
        ("aten::mm", [[2, 3]], ["float"], None),
        ("aten::mm", [[2, 3], [4, 5]], ["float", "float"], None),
        ("aten::mm", [[2, 3], "3x5"], ["float", "float"], None),
        ("aten::mm", [[2, -1], [-1, 5]], ["float", "float"], None),
        ("aten::mm", [[2, None], [None, 5]], ["float", "float"], None),
        ("aten::mm", [[2, 1.5], [1.5, 5]], ["float", "float"], None),
        ("aten::bmm", [[2, 3, 4], [1, 4, 5]], ["float", "float"], None),
        ("aten::add", [[2, 3], [4, 3], []], ["float", "float", "Scalar"], None),
        ("aten::add", [[], [], []], ["Scalar", "Scalar", "Scalar"], None),
        (
            "aten::cudnn_convolution",
            [[2, 3, 8, 8], [4, 3, 3, 3], [], [], [], []],
            [],
            ["", "", "[0]", "[0]", "[1]", "1"],
        ),
        (
            "aten::cudnn_convolution",
            [[2, 3, 8, 8], [4, 2, 3, 3], [], [], [], []],
            [],
            ["", "", "[0]", "[1]", "[1]", "1"],
        ),
        (
            "aten::cudnn_convolution",
            [[2, 3, 2, 2], [4, 3, 5, 5], [], [], [], []],
            [],
            ["", "", "[0]", "[1]", "[1]", "1"],
        ),
        ("aten::cudnn_convolution", [[2, 3], [4, 3], [], [], [], []], [], ["", "", "[0]", "[1]", "[1]", "1"]),
        ("aten::_scaled_dot_product_flash_attention", [[2, 3, 4], [2, 3, 4], [2, 3, 4]], [], None),
        ("aten::cat", [[], []], ["TensorList", "Scalar"], None),
        ("aten::embedding", [[5], [3]], ["float", "long int"], None),
        ("aten::sum", ["?"], ["float"], ["?"]),
        ("", [[1]], ["float"], None),
    ],
)
def test_what_does_not_fit_is_unknown(name: str, shapes: Any, types: Any, values: Any) -> None:
    assert work_of(name, shapes, types, values) is None


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2)
        self.norm = torch.nn.LayerNorm(8)
        self.project = torch.nn.Linear(8, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.norm(self.convolution(x).relu().flatten(2).transpose(1, 2)).unsqueeze(1)
        attended = torch.nn.functional.scaled_dot_product_attention(tokens, tokens, tokens)
        return self.project(attended.squeeze(1)).sum()


def test_the_outermost_known_operators_of_a_recorded_step_add_up_to_what_torch_counts(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Small(), torch.randn(2, 4, 16, 16)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        model(x)
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    operators = sorted(
        (event for event in events if event.get("cat") == "cpu_op"), key=lambda event: (event["ts"], -event["dur"])
    )
    found: dict[str, Work] = {}
    covered_until = 0.0
    for event in operators:
        arguments = event["args"]
        if event["ts"] < covered_until or "Input Dims" not in arguments:
            continue
        known = work_of(event["name"], arguments["Input Dims"], arguments["Input type"], arguments["Concrete Inputs"])
        if known is not None:
            covered_until = event["ts"] + event["dur"]
            found[event["name"]] = known
            assert known.bytes is not None, event["name"]
    matrix = {name: known.flops for name, known in found.items() if known.kind in ("gemm", "convolution", "attention")}
    with FlopCounterMode(display=False) as counter:
        model(x)
    attention = 4 * 2 * 64 * 64 * 8  # which torch does not count on a CPU
    assert matrix["aten::_scaled_dot_product_flash_attention_for_cpu"] == attention
    assert sum(matrix.values()) - attention == counter.get_total_flops()
    assert {"aten::native_layer_norm", "aten::relu", "aten::sum"} <= set(found)
