"""Which of NVIDIA's profilers is noticed, and what is no sign of one."""

from __future__ import annotations

import pytest

from lightning_gpuprof.capture import nvtx_ranges
from lightning_gpuprof.capture.nsight import active_tool


@pytest.mark.parametrize(
    ("environ", "tool"),
    [
        ({}, None),
        ({"NSYS_PROFILING_SESSION_ID": "12345"}, "Nsight Systems"),
        ({"NV_COMPUTE_PROFILER_PERFWORKS_DIR": "/opt/ncu"}, "Nsight Compute"),
        ({"NSYS_PROFILING_SESSION_ID": ""}, None),
        ({"NV_NSIGHT_COMPUTE_VERSION": "11.7.0-1", "NV_CUDA_LIB_VERSION": "11.7"}, None),  # CUDA images
        ({"NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT": "1"}, None),  # a user's setting
    ],
)
def test_a_tool_is_noticed_by_what_it_sets_itself(environ: dict[str, str], tool: str | None) -> None:
    assert active_tool(environ) == tool


@pytest.mark.parametrize(
    ("option", "under_tool", "made"),
    [(None, False, False), (None, True, True), (True, False, True), (False, True, False)],
)
def test_ranges_are_made_as_asked_for_and_else_under_a_tool(option: bool | None, under_tool: bool, made: bool) -> None:
    environ = {"NSYS_PROFILING_SESSION_ID": "1"} if under_tool else {}
    assert nvtx_ranges.is_enabled(option, environ) is made
