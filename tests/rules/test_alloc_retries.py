import pytest
from empty_structs import empty
from findings_builder import fired, gain
from gpu_builder import idle_window
from memory_builder import allocator, on_gpu

from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.discovery import discover
from lightning_gpuprof.rules.engine import diagnose, settle
from lightning_gpuprof.rules.memory.alloc_retries import AllocRetries
from lightning_gpuprof.rules.memory.cudamalloc_steady import CudamallocSteady
from lightning_gpuprof.rules.memory.empty_cache_in_loop import EmptyCacheInLoop

RULE = AllocRetries()
ALL = [RULE, CudamallocSteady(), EmptyCacheInLoop()]


def test_a_window_tells_what_it_costs() -> None:
    metrics = on_gpu(allocator(retries_steady_count=12), windows=(idle_window(allocator=0.2, launch=0.1),))
    finding = fired(RULE, metrics)
    assert finding.gain.saved_ms_per_step == pytest.approx(0.2 * 50)
    assert finding.severity == "warning"


@pytest.mark.parametrize(
    ("counts", "rule"),
    [
        ({"device_allocs_steady_count": 900}, "cudamalloc-steady"),
        ({"device_allocs_steady_count": 900, "device_frees_steady_count": 900}, "empty-cache-in-loop"),
        ({"retries_steady_count": 12}, "alloc-retries"),
    ],
)
def test_what_the_calls_are_for_comes_before_the_gaps_that_they_leave(counts: dict[str, int], rule: str) -> None:
    metrics = on_gpu(allocator(**counts))
    gaps = empty(
        Finding, rule="gpu-gaps", subject="x", gain=gain(20.0, 20.0, 50.0), confidence=0.85, explains=claims.ALLOCATOR
    )
    rules = discover().rules
    more_general = {r.id: tuple(getattr(r, "specialises", ())) for r in rules}
    found = next(f for r in ALL if (f := r.check(metrics)) is not None and f.rule == rule)
    assert [f.rule for f in settle([gaps, found], metrics, more_general)] == [rule, "gpu-gaps"]


def test_what_tracing_added_to_the_idle_time_is_not_gained() -> None:
    """42 ms of work in a step of 60 ms when traced: of the untraced 50 ms no more than 8 ms can be idle."""
    window = idle_window(step_ms=60.0, allocator=0.2, launch=0.1)
    finding = fired(RULE, on_gpu(allocator(retries_steady_count=12), windows=(window,)))
    assert finding.gain.saved_ms_per_step == pytest.approx(8 * 12 / 18)


def test_slow_steps_do_not_tell_what_ordinary_ones_cost() -> None:
    slow = idle_window(reason="slow step: 300 ms", allocator=0.2, launch=0.1)
    assert fired(RULE, on_gpu(allocator(retries_steady_count=12), windows=(slow,))).gain is None


def test_the_calls_that_retries_make_are_theirs() -> None:
    calls = allocator(retries_steady_count=12, device_allocs_steady_count=900, device_frees_steady_count=900)
    assert [f.rule for f in diagnose(on_gpu(calls), ALL).findings] == ["alloc-retries"]
