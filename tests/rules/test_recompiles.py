import pytest
from compile_builder import SIZE, compiled, recompile
from findings_builder import fired

from lightning_gpuprof.rules.steps.recompiles import Recompiles

RULE = Recompiles()
RUN_S = 400 * 0.05 + 1.0 + 0.2 + 4 * 0.012
"""Steps, validation, checkpoints and gaps between epochs."""


def test_a_size_that_changes_is_found_with_function_guard_and_gain() -> None:
    finding = fired(RULE, compiled([recompile(batch) for batch in range(50, 250, 20)], run={"compile.dynamic": "no"}))
    assert (finding.severity, finding.subject) == ("critical", "forward() (net.py:21)")
    assert "recompiled 10 times after warm-up, which took 5.00 s (24 % of the run)" in finding.summary
    assert "in batches 50 to 230" in finding.summary
    assert "The size of x changes at dimension 0: set torch.compile(..., dynamic=True)" in finding.advice
    assert finding.change is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(5e3 / 400)
    assert finding.gain.speedup_max == pytest.approx(RUN_S / (RUN_S - 5))


def test_a_value_of_python_is_to_become_a_tensor() -> None:
    finding = fired(RULE, compiled([recompile(i, "L['self'].flag == 3") for i in range(50, 60)]))
    assert finding.advice.startswith("The Python value L['self'].flag changes")


def test_smaller_last_batches_are_to_be_dropped() -> None:
    finding = fired(RULE, compiled([recompile(99, cost_s=2.0)], run={"trainer.num_training_batches": 100}))
    assert "DataLoader(..., drop_last=True)" in finding.advice
    finding = fired(RULE, compiled([recompile(98, cost_s=2.0)], run={"trainer.num_training_batches": 100}))
    assert "drop_last" not in finding.advice


def test_a_module_of_torchs_own_has_the_name_it_has_in_the_model() -> None:
    steps = [recompile(i, file="_dynamo/external_utils.py") for i in range(50, 60)]
    assert fired(RULE, compiled(steps, run={"compile.modules": "encoder"})).subject == "encoder"


@pytest.mark.parametrize(("cost_s", "fires"), [(0.6, False), (0.65, True)])
def test_the_least_worthwhile_gain_decides(cost_s: float, fires: bool) -> None:
    assert (RULE.check(compiled([recompile(99, cost_s=cost_s)])) is not None) is fires


def test_what_the_steps_did_not_lose_is_no_gain() -> None:
    finding = fired(RULE, compiled([recompile(i) for i in range(50, 60)], steps_excess_s=1.0))
    assert finding.gain.saved_ms_per_step == pytest.approx(2.5)


def test_without_a_reason_the_way_to_it_is_named() -> None:
    finding = fired(RULE, compiled([recompile(i, "") for i in range(50, 60)]))
    assert "TORCH_LOGS=recompiles" in finding.advice
    assert SIZE not in finding.advice
