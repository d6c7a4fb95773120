from __future__ import annotations

from example_runs import example_run

from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.ranks.ddp_bucket_size import DdpBucketSize
from lightning_gpuprof.rules.ranks.exposed_comm import ExposedComm


def test_it_carries_the_gain_before_the_general_rule_and_promises_none() -> None:
    metrics = example_run(**DdpBucketSize.examples[0].changes)
    specific, general = diagnose(metrics, (ExposedComm(), DdpBucketSize())).findings
    assert (specific.rule, general.rule, general.gain) == ("ddp-bucket-size", "exposed-comm", None)
    assert specific.gain.saved_lower_ms_per_step == 0
