"""Other threads of the program, from records of the journal to what rules read."""

import numpy as np
import pytest
from built_journals import MS, build, charge, ints, journal

from lightning_gpuprof.analyze.journal import _add_sites
from lightning_gpuprof.analyze.journal_columns import CpuColumns, Journal
from lightning_gpuprof.model.journal import CallSites, ThreadLooks


def beside_a_thread() -> Journal:
    """100 steps of 10 ms, of which 4 fetch; each waits 3 ms for the interpreter, now in one place, now in another."""
    of = journal(100)
    rows = np.arange(0, 100, 2)
    in_forward = (rows // 2) % 2
    of.cpu = CpuColumns(
        batch=ints(rows),
        charged={1: ints(np.full(50, MS)), 2: ints(5 * MS - 3 * MS * in_forward), 3: ints(np.full(50, MS))},
    )
    return of


def test_records_add_up_and_name_the_busiest_thread_first() -> None:
    of = beside_a_thread()
    for cpu_ms in (300, 500):
        seen = ThreadLooks(cpu_ns=cpu_ms * MS, sites={"train.py:21 count": 5})
        idle = ThreadLooks(sites={"train.py:9 wait": 5})
        record = CallSites(
            counts={}, threads={"metrics": seen, "idle": idle}, threads_ns=1000 * MS, lock={2: (10, 6), 1: (10, 10)}
        )
        _add_sites(of, record)
    lock = build(of).interpreter_lock
    assert [(one.name, one.cpus, one.sites) for one in lock.threads] == [
        ("metrics", pytest.approx(0.4), (("train.py:21 count", 10),))
    ]
    assert (lock.asked, lock.late) == (20, 12)  # the fetch waits for whatever it waits for


def test_waiting_is_summed_over_the_phases_and_without_the_fetch() -> None:
    of = beside_a_thread()
    of.cpu.charged[2] = ints(np.full(50, 2 * MS))
    _add_sites(of, CallSites(counts={}, threads_ns=MS))
    lock = build(of).interpreter_lock
    assert lock.waited.median_ms == pytest.approx(3.0)
    assert lock.samples >= 20


def test_time_of_sampled_steps_is_told_of_the_step_that_it_is_compared_with() -> None:
    """Sampled steps that are twice as long as the others do not make others wait longer than they take."""
    of = beside_a_thread()
    of.cpu = CpuColumns(
        batch=ints(np.arange(0, 100, 4)),
        charged={1: ints(np.full(25, MS)), 2: ints(np.full(25, 2 * MS)), 3: ints(np.full(25, MS))},
    )
    for step in range(0, 100, 4):
        charge(of, 2, step, 10 * MS)
    _add_sites(of, CallSites(counts={}, threads_ns=MS))
    lock = build(of).interpreter_lock
    assert lock.waited.median_ratio == pytest.approx(13 / 20)
    assert lock.waited.median_ms == pytest.approx(6.5)


def test_without_cpu_times_of_threads_nothing_is_known() -> None:
    assert build(beside_a_thread()).interpreter_lock is None
