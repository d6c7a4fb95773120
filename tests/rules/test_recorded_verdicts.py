"""Recorded traces of many GPUs: the verdict agrees with the facts that a slow, independent program found in them."""

import pytest
from recorded_traces import TRUTH
from trace_metrics import recorded_run
from trusted import assert_can_be_trusted

from lightning_gpuprof.rules.device_causes import COMMUNICATION_RATIO
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.host_causes import HOST_RATIO

VERDICTS: dict[str, tuple[str, str]] = {
    "a100_event_sync_multistream_tiny": ("host-bound", "idle for 98 %, nearly all before launches"),
    "a100_event_sync_tiny": ("mixed", "a window of 0.26 ms: no cause costs 0.2 ms"),
    "a100_triton_tiny": ("latency-bound", "one kernel of one block"),
    "cpu_only_gloo300": ("compute-bound", "no device: the host's own work"),
    "gp100_gpu_user_annotation": ("host-bound", "idle for 96 %"),
    "h100_bert_small": ("host-bound", "a tiny model, idle for 92 % before launches"),
    "h100_nsfw_vit": ("host-bound", "idle for 84 % before launches"),
    "mi210_gpu_only": ("compute-bound", "busy for 89 %, no communication"),
    "mi250_minitoy_rocm62": ("host-bound", "idle for 98 %"),
    "mi300_torch_compile_triton": ("compute-bound", "never idle, no communication"),
    "old_async_gpu_tiny": ("host-bound", "idle for 98 %"),
    "v100_dlrm_8rank_0": ("mixed", "communication 43 %, idle 49 %"),
    "v100_dlrm_8rank_1": ("comm-bound", "communication 59 %, idle 34 %"),
    "v100_dlrm_8rank_2": ("host-bound", "communication 28 %, idle 62 %"),
    "v100_dlrm_8rank_3": ("comm-bound", "communication 50 %, idle 43 % of which 5 in the fetch"),
    "v100_dlrm_8rank_4": ("mixed", "communication 40 %, idle 54 %"),
    "v100_dlrm_8rank_5": ("host-bound", "communication 38 %, idle 56 %"),
    "v100_dlrm_8rank_6": ("host-bound", "communication 29 %, idle 62 %"),
    "v100_dlrm_8rank_7": ("host-bound", "communication 14 %, idle 76 %"),
}
LARGE: dict[str, tuple[str, str]] = {
    "a100_2rank_nccl_metadata": ("host-bound", "idle for 76 %, communication 6 %"),
    "a100_8rank_rank3_callstack": ("compute-bound", "idle for 16 %, communication 19 %: neither passes"),
    "a100_alexnet_cuda_sync": ("host-bound", "idle for 99 %, two thirds in cudaMalloc"),
    "h100_owlv2": ("input-bound", "fetches of 619 ms, in 46 % of the window the device waits for them"),
    "h100_timesformer": ("compute-bound", "idle for 1 %"),
    "mi300_8rank_rank0_resnet_ckpt": ("comm-bound", "communication 64 %"),
    "rtx2080ti_resnet": ("input-bound", "fetches of 8.2 s, in 46 % of the window the device waits for them"),
    "v100_2rank_rank1_comm_heavy": ("host-bound", "idle for 42 %, communication 21 %"),
    "v100_ns_resolution": ("compute-bound", "idle for 2 %"),
    "v100_resnet50_dl0_2021": ("input-bound", "no workers: fetches of 416 ms, the device waits for 28 %"),
    "v100_resnet50_dl0_preschema": ("mixed", "fetches 22 %, launches 27 % of the window"),
}


def agrees(name: str, kind: str) -> None:
    metrics = recorded_run(f"{name}.json.gz")
    said = diagnose(metrics)
    assert_can_be_trusted(said.findings, said.combined, said.verdict, dict(metrics.run))
    verdict = said.verdict
    assert verdict.kind == kind, verdict.summary
    truth = TRUTH[f"{name}.json.gz"]
    devices = list(truth.get("devices", {}).values())
    idle = max((d["idle_pct"] / 100 for d in devices), default=None)
    exposed = max((d["comm_exposed_us"] / d["window_us"] for d in devices), default=0.0)
    if kind == "comm-bound":
        assert exposed >= COMMUNICATION_RATIO
    if kind == "host-bound":
        assert idle is not None
        assert idle >= max(HOST_RATIO, exposed)
    if kind == "input-bound":
        assert truth["dataloader_us"] > 0
        assert idle is not None
        assert idle >= 0.2
    if kind in ("compute-bound", "latency-bound"):
        assert (idle or 0.0) + exposed < 0.5


@pytest.mark.parametrize("name", VERDICTS)
def test_the_verdict_agrees_with_the_facts(name: str) -> None:
    agrees(name, VERDICTS[name][0])


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_the_verdict_of_a_large_trace_agrees_with_the_facts(name: str) -> None:
    agrees(name, LARGE[name][0])
