"""Things planted into steps and between them in, marks at their batches out."""

import numpy as np
from built_journals import MS, charge, journal

from lightning_gpuprof.analyze import metrics as analyze_metrics
from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.analyze.marks import MAX_MARKS
from lightning_gpuprof.model.curves import Marks
from lightning_gpuprof.model.journal import PROFILED, Segment, WindowRecord
from lightning_gpuprof.model.window import WindowFacts


def found(of: Journal) -> dict[str, Marks]:
    facts = [WindowFacts(start_step=record.start_step, stop_step=record.stop_step) for record in of.windows]
    return {one.kind: one for one in analyze_metrics.build(of, facts).marks}


def test_a_quiet_run_of_one_epoch_has_no_marks() -> None:
    assert found(journal(100)) == {}


def test_outliers_are_marked_with_their_period() -> None:
    of = journal(200)
    charge(of, 1, 70, 100 * MS)
    charge(of, 1, 150, 50 * MS)
    marks = found(of)["outlier"]
    assert [(m.from_batch, m.ms) for m in marks.marks] == [(70, 110.0), (150, 60.0)]


def test_validation_in_a_step_and_after_one_are_marked_and_sanity_is_not() -> None:
    of = journal(100)
    charge(of, 5, 40, 30 * MS)
    begin = int(of.steps.start_ns[80])
    of.steps.start_ns[80:] += 70 * MS
    of.segments.append(
        Segment(kind="epoch_gap", start_ns=begin, end_ns=begin + 70 * MS, charged={5: 50 * MS, 6: 20 * MS})
    )
    marks = found(of)
    assert [(m.from_batch, m.ms) for m in marks["validation"].marks] == [(40, 30.0), (79, 50.0)]
    assert [(m.from_batch, m.ms) for m in marks["checkpoint"].marks] == [(79, 20.0)]


def test_a_step_and_the_stretch_after_it_are_one_mark() -> None:
    of = journal(100)
    charge(of, 6, 99, 30 * MS)
    end = int(of.steps.start_ns[-1] + of.steps.period_ns[-1])
    of.segments.append(Segment(kind="teardown", start_ns=end, end_ns=end + 5 * MS, charged={6: 5 * MS}))
    assert [(m.from_batch, m.ms) for m in found(of)["checkpoint"].marks] == [(99, 35.0)]


def test_a_window_is_marked_from_its_first_traced_step_to_its_last() -> None:
    of = journal(100)
    of.steps.flags[30:35] |= PROFILED
    of.steps.flags[60:62] |= PROFILED
    begin, end = (int(of.steps.start_ns[i]) for i in (30, 35))
    of.windows = [
        WindowRecord(start_step=32, stop_step=34, start_ns=begin, stop_ns=end, file="x"),
        WindowRecord(start_step=80, stop_step=82, problem="never opened"),
    ]
    marks = found(of)["window"]
    assert [(m.from_batch, m.to_batch) for m in marks.marks] == [(30, 34)]


def test_epochs_after_the_first_and_speed_levels_are_marked() -> None:
    assert [m.from_batch for m in found(journal(100, epochs=4))["epoch"].marks] == [25, 50, 75]
    forward = np.full(400, 5.0)
    forward[200:] = 15.0
    (mark,) = found(journal(400, forward_ms=forward))["speed level"].marks
    assert (mark.from_batch, mark.ms) == (200, 20.0)


def test_of_too_many_marks_the_longest_stay_and_their_number_is_told() -> None:
    of = journal(1000)
    for i in range(0, 1000, 4):
        charge(of, 5, i, (1 + i) * MS)
    marks = found(of)["validation"]
    assert marks.count == 250
    assert [m.from_batch for m in marks.marks] == list(range(0, 1000, 4))[-MAX_MARKS:]
    epochs = found(journal(3000, epochs=1000))["epoch"]
    assert (epochs.count, len(epochs.marks)) == (999, MAX_MARKS)
    assert epochs.marks[0].from_batch == 3
    assert epochs.marks[-1].from_batch == 2997


def test_a_journal_without_steps_has_no_marks() -> None:
    assert found(journal(0)) == {}
