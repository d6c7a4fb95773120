from collections.abc import Mapping

import pytest
from findings_builder import fired
from metrics_builder import build

from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.rules.steps.debug_apis_on import DebugApisOn

RULE = DebugApisOn()


@pytest.mark.parametrize(
    ("run", "subject"),
    [
        ({"trainer.detect_anomaly": True}, "detect_anomaly"),
        ({"flags.detect_anomaly": True, "trainer.detect_anomaly": False}, "detect_anomaly"),
        ({"device.type": "cuda", "env.CUDA_LAUNCH_BLOCKING": "1"}, "CUDA_LAUNCH_BLOCKING"),
        ({"env.TORCH_DISTRIBUTED_DEBUG": "DETAIL", "trainer.world_size": 2}, "TORCH_DISTRIBUTED_DEBUG=DETAIL"),
        ({"env.NCCL_DEBUG": "info", "trainer.world_size": 2}, "NCCL_DEBUG"),
        ({"flags.python_debugger": True}, "a Python tracing function (debugger, coverage)"),
        ({"trainer.profiler": "AdvancedProfiler"}, "Trainer(profiler=AdvancedProfiler)"),
        (
            {"trainer.detect_anomaly": True, "flags.compile_disabled": True},
            "detect_anomaly and TORCHDYNAMO_DISABLE",
        ),
    ],
)
def test_settings_for_debugging_are_named(run: Mapping[str, Value], subject: str) -> None:
    finding = fired(RULE, build(run=run))
    assert (finding.subject, finding.severity) == (subject, "info")
    assert finding.gain is None


@pytest.mark.parametrize(
    "run",
    [
        {"trainer.detect_anomaly": False, "flags.detect_anomaly": False, "env.NCCL_DEBUG": "WARN"},
        {"device.type": "cuda", "env.CUDA_LAUNCH_BLOCKING": "0"},
        {"env.TORCH_DISTRIBUTED_DEBUG": "INFO", "env.PYTHONMALLOC": "malloc", "trainer.world_size": 2},
        {"env.TORCH_DISTRIBUTED_DEBUG": "DETAIL", "env.NCCL_DEBUG": "INFO", "trainer.world_size": 1},
        {"env.PYTHONASYNCIODEBUG": "1"},
        {"trainer.profiler": "SimpleProfiler", "flags.deterministic_algorithms": True},
    ],
)
def test_it_is_quiet_where_nothing_is_debugged(run: Mapping[str, Value]) -> None:
    assert RULE.check(build(run=run)) is None
