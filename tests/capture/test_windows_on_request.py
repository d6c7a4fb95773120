"""Windows that a person or a slow step asks for, or that come at every multiple, and what each of them may use up."""

from noting_tracer import MS, Run, reasons, spans

from lightning_gpuprof.model.config import parse_windows


def test_windows_come_at_every_multiple_and_no_unreached_one_is_told() -> None:
    run = Run(parse_windows([], 3), every_n_steps=20)
    run.train(75)
    assert spans(run) == [(20, 22, ""), (40, 42, ""), (60, 62, "")]


def test_a_multiple_at_a_window_of_its_own_is_left_out() -> None:
    run = Run(parse_windows([(41, 45)], 3), every_n_steps=20)
    run.train(75)
    assert spans(run) == [(20, 22, ""), (41, 45, ""), (60, 62, "")]


def test_multiples_go_on_beside_the_window_of_a_steady_run() -> None:
    run = Run(None, every_n_steps=30)
    run.train(100, period_ns=100 * MS)
    starts = [r.start_step for r in run.records]
    assert 20 <= starts[0] < 28
    assert starts[1:] == [30, 60, 90]
    assert all(r.problem == "" for r in run.records)


def test_resuming_goes_on_with_the_next_multiple() -> None:
    run = Run(parse_windows([], 3), every_n_steps=20)
    run.train(20, first_step=55)
    assert spans(run) == [(60, 62, "")]


def test_multiples_survive_accumulation_and_two_optimizers() -> None:
    accumulating = Run(parse_windows([], 3), every_n_steps=10)
    accumulating.train(100, batches_per_step=4)
    assert spans(accumulating) == [(10, 12, ""), (20, 22, "")]
    manual = Run(parse_windows([], 3), every_n_steps=15)
    manual.train(25, steps_per_batch=2)
    assert spans(manual) == [(16, 16, ""), (30, 32, ""), (46, 46, "")]


def test_the_reason_of_a_window_is_recorded() -> None:
    run = Run(parse_windows([(41, 45)], 3), every_n_steps=20)
    run.train(65)
    assert reasons(run) == [(20, "every_n_steps"), (41, "planned"), (60, "every_n_steps")]
    steady = Run(None)
    steady.train(100, period_ns=100 * MS)
    assert [reason for _, reason in reasons(steady)] == ["steady"]


def test_planned_windows_are_not_starved_by_multiples() -> None:
    run = Run(parse_windows([(200, 202), (300, 302)], 3), every_n_steps=10, max_windows=5)
    run.train(400)
    assert reasons(run) == [
        (10, "every_n_steps"),
        (20, "every_n_steps"),
        (30, "every_n_steps"),
        (200, "planned"),
        (300, "planned"),
    ]


def test_a_request_opens_a_window_at_once_and_steps_far_from_it_stay_untouched() -> None:
    run = Run(parse_windows((500, 502), 3))
    run.train(600, asked_at={100: "requested by file"})
    assert reasons(run) == [(102, "requested by file"), (500, "planned")]
    assert run.traced_batches == [*range(100, 105), *range(498, 503)]
    assert run.looked <= 14


def test_a_request_in_a_run_without_windows_is_answered() -> None:
    run = Run(parse_windows([], 3))
    run.train(50, asked_at={20: "requested by SIGUSR2"})
    assert reasons(run) == [(22, "requested by SIGUSR2")]


def test_a_window_that_is_due_answers_the_request_too() -> None:
    run = Run(parse_windows((23, 25), 3))
    run.train(50, asked_at={20: "requested by file"})
    assert reasons(run) == [(23, "planned; requested by file")]


def test_a_request_in_an_open_window_opens_the_next() -> None:
    run = Run(parse_windows((20, 25), 3))
    run.train(50, asked_at={22: "requested by file"})
    assert reasons(run) == [(20, "planned"), (28, "requested by file")]


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


def test_a_request_at_the_very_end_is_told() -> None:
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
