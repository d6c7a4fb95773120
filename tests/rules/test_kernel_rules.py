"""What the examples of the rules on kernels cannot say: which of two rules has the gain, windows that do not count."""

import pytest
from example_runs import example_run
from metrics_builder import replace
from msgspec.structs import replace as changed

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import BaseRule, MissingSignal
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.kernels.attention_unfused import AttentionUnfused
from lightning_gpuprof.rules.kernels.fp32_matmul_tf32_off import Fp32MatmulTf32Off
from lightning_gpuprof.rules.kernels.kernel_rule import KernelRule
from lightning_gpuprof.rules.kernels.memory_bound_kernels import MemoryBoundKernels
from lightning_gpuprof.rules.kernels.tc_unused import TcUnused


def metrics_of(rule: BaseRule) -> Metrics:
    """The run of the rule's first example, which fires."""
    return example_run(**rule.examples[0].changes)


@pytest.mark.parametrize(
    ("general", "special", "run"),
    [
        (TcUnused(), Fp32MatmulTf32Off(), metrics_of(Fp32MatmulTf32Off())),
        (
            MemoryBoundKernels(),
            AttentionUnfused(),
            example_run(
                kernels={"pointwise": 30, "tensor core gemm": 19},
                operators=AttentionUnfused.examples[0].changes["operators"],
                roofline=MemoryBoundKernels.examples[0].changes["roofline"],
            ),
        ),
    ],
)
def test_the_special_rule_has_the_gain_and_both_no_more_than_the_larger(
    general: KernelRule, special: KernelRule, run: Metrics
) -> None:
    alone = [found.gain for rule in (general, special) if (found := rule.check(run)) and found.gain is not None]
    found = diagnose(run, (general, special)).findings
    assert [one.rule for one in found] == [special.id, general.id]
    gains = [one.gain.saved_ms_per_step for one in found if one.gain is not None]
    assert sum(gains) == pytest.approx(max(gain.saved_ms_per_step for gain in alone))


def test_a_window_on_a_slow_step_is_no_ordinary_one() -> None:
    run = metrics_of(TcUnused())
    slow = changed(run.windows[0], reason="slow step: 3 times the median")
    with pytest.raises(MissingSignal, match="no trace window"):
        TcUnused().check(replace(run, windows=(slow,)))
