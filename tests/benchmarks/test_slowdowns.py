"""The benchmark of slowdowns sees those that are planted, and none where nothing is."""

import slowdowns


def test_a_planted_shift_is_noticed_and_a_healthy_run_is_left_alone() -> None:
    shifted, healthy = (slowdowns.measure("quiet", 50.0, planted, runs=3, seed=0) for planted in ("5 %", "nothing"))
    assert (shifted.noticed, shifted.false_alarms, healthy.false_alarms) == (3, 0, 0)
    assert shifted.median_delay_steps is not None
    assert 50 <= shifted.median_delay_steps < 100
