"""Every second under one name."""

import msgspec
import pytest
from built_journals import MS, build, charge, ints, journal

from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.analyze.ledger import FIRST_FETCH, ledger
from lightning_gpuprof.model.journal import FIRST_OF_EPOCH, Segment, Slot
from lightning_gpuprof.model.phases import Phase, Region
from lightning_gpuprof.model.report import LedgerRow


def add_slot(
    of: Journal, action: str, phase: Phase, region: Region = "main", callback: str = "", hook: str = ""
) -> int:
    of.slots = [
        *of.slots,
        Slot(id=len(of.slots), action=action, phase=phase, region=region, callback=callback, hook=hook),
    ]
    return len(of.slots) - 1


def append(of: Journal, segment: Segment) -> None:
    of.segments.append(segment)
    of.footer.end_ns = segment.end_ns


def row(of: Journal, **wanted: object) -> LedgerRow:
    (found,) = [r for r in ledger(of) if all(getattr(r, name) == value for name, value in wanted.items())]
    return found


def full_journal() -> Journal:
    """A run with something of everything, and 30 ms that no record accounts for."""
    of = journal(100, epochs=2)
    fetch, step = (
        add_slot(of, "[_EvaluationLoop].val_next", "data_wait", "validation", hook="val_next"),
        add_slot(of, "[Strategy]S.validation_step", "forward", "validation", hook="validation_step"),
    )
    logged = add_slot(of, "self.log", "logging", "validation")
    charge(of, fetch, 99, 40 * MS)
    charge(of, step, 99, 60 * MS)
    charge(of, logged, 99, 5 * MS)
    charge(of, 6, 60, 30 * MS)
    scheduler = add_slot(of, "[LightningModule]M.lr_scheduler_step", "optimizer", hook="lr_scheduler_step")
    optimizer = add_slot(of, "[LightningModule]M.optimizer_step", "optimizer", hook="optimizer_step")
    after = add_slot(of, "after optimizer", "optimizer")
    for index in range(100):
        charge(of, optimizer, index, 2 * MS)
        charge(of, after, index, 1 * MS)
    hook = add_slot(of, "[Callback]C.on_fit_end", "callbacks", callback="C{'x': 1}", hook="on_fit_end")
    end = int(of.steps.start_ns[-1] + of.steps.period_ns[-1])
    append(of, Segment(kind="epoch_gap", start_ns=end, end_ns=end + 7 * MS, charged={scheduler: 3 * MS, 0: 4 * MS}))
    append(
        of, Segment(kind="teardown", start_ns=end + 37 * MS, end_ns=end + 57 * MS, charged={hook: 15 * MS, 0: 5 * MS})
    )
    return of


def test_rows_are_disjoint_and_sum_to_the_wall_time_and_to_its_parts() -> None:
    of = full_journal()
    m = build(of)
    rows = m.ledger
    assert sum(r.total_s for r in rows) == pytest.approx(m.wall.total_s, abs=1e-9)
    assert sum(r.share for r in rows) == pytest.approx(1)
    assert len({(r.part, r.phase, r.name, r.hook) for r in rows}) == len(rows)
    for part, seconds in m.wall.parts.items():
        assert sum(r.total_s for r in rows if r.part == part) == pytest.approx(seconds, abs=1e-9)


def test_what_no_record_accounts_for_is_the_last_row() -> None:
    of = full_journal()
    last = ledger(of)[-1]
    assert (last.part, last.phase, last.count) == ("unexplained", None, None)
    assert last.total_s == pytest.approx(0.03)
    assert [r.total_s for r in ledger(of)[:-1]] == sorted((r.total_s for r in ledger(of)[:-1]), reverse=True)
    nothing = ledger(journal())[-1]
    assert (nothing.part, nothing.total_s) == ("unexplained", 0)


def test_time_after_a_failure_of_the_measurement_is_not_explained() -> None:
    of = journal(10)
    end = int(of.steps.start_ns[-1] + of.steps.period_ns[-1])
    append(of, Segment(kind="unmeasured", start_ns=end, end_ns=end + 500 * MS, charged={0: 500 * MS}))
    assert ledger(of)[-1].total_s == pytest.approx(0.5)


def test_validation_shows_its_own_fetch_step_and_logging() -> None:
    of = full_journal()
    for phase, name, ms in (("data_wait", "fetch", 40), ("forward", "validation_step", 60), ("logging", "self.log", 5)):
        found = row(of, part="validation", phase=phase, name=name)
        assert (found.total_s, found.count) == (pytest.approx(ms / 1e3), 1)


def test_names_are_those_that_people_use() -> None:
    of = full_journal()
    assert row(of, name="lr scheduler step").part == "epoch_gap"
    teardown = row(of, part="teardown", name="C")
    assert (teardown.hook, teardown.total_s) == ("on_fit_end", pytest.approx(0.015))
    assert row(of, part="checkpoint", phase="checkpoint").total_s == pytest.approx(0.03)
    together = row(of, name="optimizer step")
    assert (together.total_s, together.count) == (pytest.approx(0.3), 100)


def test_a_region_of_the_users_own_is_a_row_of_what_it_is_in() -> None:
    of = journal(10)
    around = of.slots[2], of.slots[3]
    of.slots = [
        *of.slots,
        msgspec.structs.replace(around[0], id=9, annotation="augment > flip"),
        msgspec.structs.replace(around[1], id=10, annotation="draw"),
    ]
    charge(of, 9, 3, 70 * MS)
    charge(of, 10, 3, 30 * MS)
    assert row(of, name="step > augment > flip").total_s == pytest.approx(0.07)
    assert row(of, name="step").total_s == pytest.approx(0.05)
    assert row(of, name="Slow", hook="on_train_batch_end > draw").total_s == pytest.approx(0.03)


def test_the_first_fetch_of_each_epoch_stands_apart() -> None:
    of = journal(100, epochs=2)
    charge(of, 1, 50, 200 * MS)
    assert int((of.steps.flags & FIRST_OF_EPOCH > 0).sum()) == 2
    first = row(of, name=FIRST_FETCH)
    assert (first.part, first.phase, first.count) == ("train", "data_wait", 2)
    assert first.total_s == pytest.approx(0.208)
    assert row(of, name="fetch").total_s == pytest.approx(98 * 0.004)


def test_a_first_batch_fetched_before_the_first_step_is_a_first_fetch() -> None:
    of = journal(10)
    of.segments[0] = Segment(kind="setup", start_ns=0, end_ns=100 * MS, charged={1: 100 * MS})
    assert {(r.part, r.count) for r in ledger(of) if r.name == FIRST_FETCH} == {("setup", 1), ("train", 1)}


def test_a_run_without_steps_has_a_ledger() -> None:
    of = journal(0)
    assert sum(r.total_s for r in ledger(of)) == pytest.approx(0.1)
    of.segments.clear()
    of.steps.charged.clear()
    of.steps.flags[:] = ints([])
    assert [r.part for r in ledger(of)] == ["unexplained"]
