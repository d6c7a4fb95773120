"""Windows that a person or a slow step asks for, or that come at every multiple, and what each of them may use up."""

from typing import Any

import pytest
from noting_tracer import MS, Run, reasons, spans

from lightning_gpuprof.model.config import parse_windows


@pytest.mark.parametrize(
    ("windows", "every_n_steps", "batches", "training", "expected"),
    [
        pytest.param([], 20, 75, {}, [(20, 22, ""), (40, 42, ""), (60, 62, "")], id="no unreached one is reported"),
        pytest.param([(41, 45)], 20, 75, {}, [(20, 22, ""), (41, 45, ""), (60, 62, "")], id="planned ones come first"),
        pytest.param([], 20, 20, {"first_step": 55}, [(60, 62, "")], id="resuming goes on with the next"),
        pytest.param([], 10, 100, {"batches_per_step": 4}, [(10, 12, ""), (20, 22, "")], id="accumulation"),
        pytest.param(
            [], 15, 25, {"steps_per_batch": 2}, [(16, 16, ""), (30, 32, ""), (46, 46, "")], id="two optimizers"
        ),
    ],
)
def test_windows_come_at_every_multiple(
    windows: Any, every_n_steps: int, batches: int, training: dict[str, int], expected: list[tuple[int, int, str]]
) -> None:
    run = Run(parse_windows(windows, 3), every_n_steps=every_n_steps)
    run.train(batches, **training)  # type: ignore[arg-type]
    assert spans(run) == expected


@pytest.mark.parametrize(
    ("windows", "options", "asked_at", "expected"),
    [
        ([(41, 45)], {"every_n_steps": 40}, {}, [(41, "planned"), (80, "every_n_steps")]),
        pytest.param(
            [(70, 72), (90, 92)],
            {"every_n_steps": 10, "max_windows": 5},
            {},
            [(10, "every_n_steps"), (20, "every_n_steps"), (30, "every_n_steps"), (70, "planned"), (90, "planned")],
            id="multiples do not starve planned windows",
        ),
        pytest.param([], {}, {20: "by SIGUSR2"}, [(22, "by SIGUSR2")], id="without other windows"),
        pytest.param((23, 25), {}, {20: "by file"}, [(23, "planned; by file")], id="one that is due answers it too"),
        pytest.param((20, 25), {}, {22: "by file"}, [(20, "planned"), (28, "by file")], id="the one after an open one"),
    ],
)
def test_each_window_has_its_reason(
    windows: Any, options: dict[str, int], asked_at: dict[int, str], expected: list[tuple[int, str]]
) -> None:
    run = Run(parse_windows(windows, 3), **options)  # type: ignore[arg-type]
    run.train(100, asked_at=asked_at)
    assert reasons(run) == expected


def test_multiples_go_on_beside_the_window_of_a_steady_run() -> None:
    run = Run(None, every_n_steps=30)
    run.train(100, period_ns=100 * MS)
    starts = [r.start_step for r in run.records]
    assert 20 <= starts[0] < 28
    assert starts[1:] == [30, 60, 90]
    assert all(r.problem == "" for r in run.records)


def test_a_request_opens_a_window_at_once_and_steps_far_from_it_stay_untouched() -> None:
    run = Run(parse_windows((500, 502), 3))
    run.train(600, asked_at={100: "requested by file"})
    assert reasons(run) == [(102, "requested by file"), (500, "planned")]
    assert run.traced_batches == [*range(100, 105), *range(498, 503)]
    assert run.looked <= 14


def test_several_requests_at_once_are_one_window() -> None:
    run = Run(parse_windows([], 3))
    run.train(
        50,
        asked_at={20: "requested by file", 21: "requested by SIGUSR2"},
        noticed_at={20: "slow step: 9 ms against 1 ms"},
    )
    assert len(run.records) == 1
    assert run.records[0].reason == ("requested by file; slow step: 9 ms against 1 ms; requested by SIGUSR2")


def test_a_request_before_the_run_is_steady_leaves_it_its_window() -> None:
    run = Run(None)
    run.train(100, period_ns=100 * MS, asked_at={5: "requested by file"})
    assert [reason for _, reason in reasons(run)] == ["requested by file", "steady"]


def test_slow_steps_leave_the_budget_of_planned_windows_alone() -> None:
    run = Run(parse_windows([(200, 202), (300, 302)], 3), max_windows=3)
    run.train(400, noticed_at={20: "slow", 60: "slow", 90: "slow", 250: "slow"})
    assert reasons(run) == [(22, "slow"), (200, "planned"), (300, "planned")]
    assert [(r.start_step, "max_windows" in r.problem) for r in run.records if r.problem] == [(62, True)]


def test_requests_by_a_person_have_a_budget_of_their_own() -> None:
    run = Run(parse_windows([50], 3), every_n_steps=10, max_windows=2)
    run.train(200, asked_at={61: "asked", 101: "asked", 141: "asked"})
    assert reasons(run) == [(10, "every_n_steps"), (50, "planned"), (63, "asked"), (103, "asked")]
    assert [(r.start_step, "max_windows" in r.problem) for r in run.records if r.problem] == [(143, True)]


def test_no_windows_at_all_means_none_on_request_either() -> None:
    run = Run(None, max_windows=0)
    run.train(100, asked_at={50: "asked"})
    assert run.tracer.calls == []
    assert ["max_windows" in r.problem for r in run.records] == [True]


def test_a_request_at_the_very_end_is_reported() -> None:
    run = Run(parse_windows([], 3))
    run.train(20, asked_at={19: "asked"})
    assert [(r.reason, r.problem) for r in run.records] == [
        ("asked", "not reached: training ended after 20 optimizer steps (finished)")
    ]


def test_a_request_for_a_step_to_come_is_answered_there_and_not_before() -> None:
    run = Run(parse_windows([], 3))
    run.controller.request("steady", by_person=False, start=40)
    run.train(60)
    assert reasons(run) == [(40, "steady")]
    assert run.traced_batches == [*range(38, 43)]
