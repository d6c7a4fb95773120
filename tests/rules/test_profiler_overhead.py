from example_runs import example_run
from findings_builder import fired

from lightning_gpuprof.rules.loop.profiler_overhead import ProfilerOverhead


def test_a_hint_that_shows_the_title_only_has_the_number() -> None:
    metrics = example_run(metrics={"overhead": {"share_of_step_ratio": 0.03}})
    assert "timing takes 3.0 % of the step" in fired(ProfilerOverhead(), metrics).summary
