"""Which list, dictionary or set of a program gains most items while it trains."""

from collections import OrderedDict, defaultdict, deque
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lightning_gpuprof.capture.conditions.kept_items import KeptItems


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen: Any = [0] * 100  # does not grow
        self.history: dict[str, list[torch.Tensor]] = {"loss": []}


def gained(change: Any, *owners: Any) -> dict[str, Any]:
    model = Model()
    kept = KeptItems([model, *owners])
    change(model)
    return kept.most()


@pytest.mark.parametrize(
    ("items", "kind"),
    [
        ([torch.ones(1, requires_grad=True) * 2], "tensors with their graphs"),
        ([torch.ones(1)], "tensors"),
        (deque([1.0]), "items"),
        ({3: torch.ones(1)}, "tensors"),
        (defaultdict(list, {3: [1]}), "items"),
        ({"a"}, "items"),
    ],
)
def test_a_container_that_gains_items_is_named_with_what_they_are(items: Any, kind: str) -> None:
    found = gained(lambda model: setattr(model, "outputs", items))
    assert found == {"kept.in": "Model.outputs", "kept.items": 1, "kept.kind": kind}


def test_of_several_the_one_that_gained_most_is_named_and_nothing_where_none_did() -> None:
    def grows(model: Model) -> None:
        model.seen += [0, 0]
        model.history["loss"] += [torch.ones(1)] * 3

    assert gained(grows) == {"kept.in": "Model.history['loss']", "kept.items": 3, "kept.kind": "tensors"}
    assert gained(lambda model: model.seen.clear()) == {}


def test_no_code_of_the_users_runs() -> None:
    class Loud(OrderedDict[str, int]):
        def __len__(self) -> int:
            raise AssertionError

    class Strange:
        __slots__ = ("items",)

        @property
        def losses(self) -> list[int]:
            raise AssertionError

    assert gained(lambda model: setattr(model, "loud", Loud(a=1)), Strange(), SimpleNamespace(some=Loud())) == {}
