"""Device spans from the journal's lines to the report's phases."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from built_journals import MS, build, ints, journal
from sample_journals import header as sample_header

from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.analyze.journal_columns import DeviceColumns, Journal
from lightning_gpuprof.model.journal import PROFILED, DeviceBlock, Slot
from lightning_gpuprof.model.metrics import Metrics

FETCH, FORWARD, SAVE, EPOCH = 1, 2, 6, 7


def measured(batch: object, *, forward_ms: object = 2.0, **dropped: int) -> Journal:
    """A run of 200 steps, of which some have device spans: forward as given, half a millisecond in two loop slots."""
    run = journal(200)
    n = len(ints(batch))
    run.device = DeviceColumns(
        batch=ints(batch),
        charged={
            0: ints(np.full(n, MS // 4)),
            FORWARD: ints(np.broadcast_to(np.asarray(forward_ms) * MS, n)),
            EPOCH: ints(np.full(n, MS // 4)),
        },
        **dropped,
    )
    return run


def device_ms(found: Metrics) -> dict[str, float]:
    return {row.phase: row.device_ms for row in found.phases if row.device_ms is not None}


def notes_of(found: Metrics) -> list[str]:
    return [caveat for caveat in found.validity.caveats if "device spans" in caveat]


def test_each_phase_has_the_median_of_its_slots_spans() -> None:
    forward_ms = np.linspace(1.0, 3.0, 41)
    found = device_ms(build(measured(range(20, 61), forward_ms=forward_ms)))
    assert found["forward"] == pytest.approx(2.0)
    assert found["loop"] == 0.5
    assert found["data_wait"] == 0.0


def test_only_steady_steps_count() -> None:
    run = measured(range(20, 100), forward_ms=[2.0] * 20 + [90.0] * 60)
    run.steps.flags[40:100] |= PROFILED
    assert device_ms(build(run))["forward"] == 2.0


def test_spans_of_steps_that_are_not_in_the_journal_count_for_nothing() -> None:
    assert device_ms(build(measured(range(5_000, 5_100)))) == {}


def test_few_measured_steps_are_not_measured() -> None:
    assert device_ms(build(measured([20, 21, 22]))) == {}


def test_without_spans_there_is_no_device_time_and_no_word_of_it() -> None:
    found = build(journal(200))
    assert device_ms(found) == {}
    assert notes_of(found) == []


def test_steps_that_could_not_be_measured_are_told_if_they_were_more_than_the_others() -> None:
    assert notes_of(build(measured(range(20, 60), dropped_backlog=3))) == []
    assert notes_of(build(measured([20], dropped_backlog=3, dropped_capturing=9))) == [
        "device spans: 1 step(s) measured, dropped 3 because the device was too far behind, "
        "9 because a graph was captured in them"
    ]


@pytest.mark.parametrize(
    "damaged",
    [
        DeviceBlock(batch=[20, 21], charged={1: [1]}),
        DeviceBlock(batch=[20], charged={1: [-1]}),
        DeviceBlock(batch=[20], charged={99: [1]}),
        DeviceBlock(batch=[20], charged={1: [1 << 63]}),
    ],
)
def test_a_block_that_does_not_add_up_is_left_out(tmp_path: Path, damaged: DeviceBlock) -> None:
    header = sample_header()
    slots = [Slot(id=0, action="loop", phase="loop"), Slot(id=1, action="step", phase="forward")]
    whole = [
        DeviceBlock(batch=[30], charged={1: [5]}, dropped_backlog=1),
        DeviceBlock(batch=[31], charged={0: [7]}, dropped_unusable=2),
    ]
    path = tmp_path / "rank0.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(r) + b"\n" for r in (header, *slots, whole[0], damaged, whole[1])))
    device = read_journal(path).device
    assert device.batch.tolist() == [30, 31]
    assert {slot: column.tolist() for slot, column in device.charged.items()} == {0: [0, 7], 1: [5, 0]}
    assert (device.dropped_backlog, device.dropped_capturing, device.dropped_unusable) == (1, 0, 2)
