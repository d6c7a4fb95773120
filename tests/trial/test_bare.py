"""Models and functions are timed without a Trainer."""

import random
import time

import pytest
import torch

from lightning_gpuprof import ab, measure_latency
from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.trial import bare


def test_latency_has_percentiles_of_the_timed_calls_only() -> None:
    slept = [0.05, 0.05] + [0.02] * 9 + [0.06]
    calls = iter(slept)
    found = measure_latency(lambda _: time.sleep(next(calls)), None, calls=10, warmup=2)
    assert next(calls, None) is None
    assert found.calls == 10
    assert found.host_ms.min >= 20
    assert found.host_ms.max >= 60
    assert found.device_ms is None
    assert "p99" in str(found)


@pytest.mark.parametrize("inputs", [torch.ones(2), (torch.ones(2),), {"input": torch.ones(2)}])
def test_inputs_are_given_as_the_model_takes_them_and_its_mode_stays(inputs: object) -> None:
    model = torch.nn.Linear(2, 1)
    seen: list[bool] = []
    model.register_forward_hook(lambda *_: seen.append(torch.is_inference_mode_enabled()))
    measure_latency(model, inputs, calls=3, warmup=0)
    measure_latency(model, inputs, calls=1, warmup=0, grad=True)
    assert seen == [True, True, True, False]
    assert model.training


def test_calls_are_timed_from_the_first_to_the_end_of_the_last() -> None:
    called: list[int] = []

    def call() -> None:
        called.append(len(called))
        time.sleep(0.002)

    assert bare._timed(call, 5) >= 0.009
    assert called == [0, 1, 2, 3, 4]


def test_the_faster_of_two_is_named_with_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = random.Random(0)
    monkeypatch.setattr(bare, "_timed", lambda call, calls: calls * call() * noise.uniform(0.98, 1.02))
    found = ab(lambda: 0.02, lambda: 0.005, seconds=2.5)
    assert found.outcome == "faster"
    assert 1 < found.lower <= found.speedup <= found.upper
    assert found.a_ms > found.b_ms
    assert str(found).startswith("b is faster")


def test_numbers_that_cannot_work_are_refused() -> None:
    with pytest.raises(ArgumentError, match="calls"):
        measure_latency(len, [], calls=0)
    with pytest.raises(ArgumentError, match="seconds"):
        ab(dict, dict, seconds=0)
