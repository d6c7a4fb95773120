"""What a model and its optimizers hold: exact bytes, each storage once."""

from __future__ import annotations

import torch
from torch import nn

from lightning_gpuprof.capture.memory import held
from lightning_gpuprof.capture.memory.backend import inner_tensors
from lightning_gpuprof.model.memory import Held


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, width: int) -> None:
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(2, width)).sum().backward()
        optimizer.step()


def test_parameters_gradients_buffers_and_states_are_exact() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8))
    optimizer = torch.optim.Adam(model.parameters())
    trained(model, optimizer, 6)
    rows = {row.dtype: row for row in held.count(model, [optimizer]).rows()}
    parameters = (6 * 8 + 8 + 8 + 8) * 4
    assert rows["float32"] == Held(
        device="cpu",
        dtype="float32",
        parameters_bytes=parameters,
        gradients_bytes=parameters,
        buffers_bytes=2 * 8 * 4,
        optimizer_state_bytes=2 * parameters + 4 * 4,
    )
    assert rows["int64"].buffers_bytes == 8  # of batches that the norm has seen


def test_tied_weights_and_views_of_one_storage_count_once() -> None:
    model = nn.ModuleDict({"one": nn.Linear(4, 4, bias=False), "two": nn.Linear(4, 4, bias=False)})
    model["two"].weight = model["one"].weight
    model.register_buffer("view", model["one"].weight.detach()[:2])
    (row,) = held.count(model, []).rows()
    assert (row.parameters_bytes, row.buffers_bytes) == (64, 0)


def test_what_has_no_memory_is_left_out_and_said() -> None:
    model = nn.ModuleList([nn.Linear(3, 3, device="meta"), nn.LazyLinear(3), nn.Linear(2, 2, bias=False)])
    counted = held.count(model, [])
    assert [row.total_bytes for row in counted.rows()] == [16]
    assert counted.skipped == {"meta": 2, "lazy": 2}


class Sharded(torch.Tensor):
    """As a DTensor: large to look at, with a small local part."""

    local: torch.Tensor

    @staticmethod
    def __new__(cls, local: torch.Tensor) -> Sharded:
        made = torch.Tensor._make_wrapper_subclass(cls, (local.numel() * 4,), dtype=local.dtype)  # type: ignore[attr-defined]
        made.local = local
        return made  # type: ignore[no-any-return]

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["local"], None

    @classmethod
    def __torch_dispatch__(cls, func: object, types: object, args: object = (), kwargs: object = None) -> object:
        raise NotImplementedError("nothing may be computed to count bytes")


def test_of_a_sharded_tensor_the_local_part_counts() -> None:
    tensor = Sharded(torch.ones(5))
    assert [inner.untyped_storage().nbytes() for inner in inner_tensors(tensor)] == [20]


def test_states_of_any_shape_are_found() -> None:
    class Own:
        def __init__(self) -> None:
            self.state = {"a": {"list": [torch.ones(3), (torch.ones(2),)], "number": 3, "deep": {"x": torch.ones(1)}}}

    (row,) = held.count(nn.Module(), [Own(), object()]).rows()
    assert row.optimizer_state_bytes == 6 * 4


def test_of_two_looks_the_larger_stays() -> None:
    model = nn.Linear(4, 4, bias=False)
    counted = held.count(model, [])
    model.weight.grad = torch.ones(4, 4)
    counted.merge(held.count(model, []))
    model.weight.grad = None
    counted.merge(held.count(model, []))
    assert counted.rows()[0].gradients_bytes == 64
