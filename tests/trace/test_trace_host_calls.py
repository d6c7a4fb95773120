"""What a call of the CUDA or HIP runtime or driver makes the host wait for, by its name."""

import pytest

from lightning_gpuprof.trace.analyses.code.waits import allocates, copies_pageable, synchronises


@pytest.mark.parametrize(
    "call",
    [
        "cudaStreamSynchronize",
        "cudaStreamSynchronize_ptsz",
        "cudaDeviceSynchronize",
        "cudaEventSynchronize",
        "hipDeviceSynchronize",
        "hipStreamSynchronize",
        "cuCtxSynchronize",
        "cuStreamSynchronize",
        "cudaMemcpy",
        "cudaMemcpy2D",
        "cuMemcpyDtoH_v2",
        "hipMemcpyWithStream",
    ],
)
def test_calls_that_wait_for_the_device(call: str) -> None:
    assert synchronises(call)
    assert not allocates(call)


@pytest.mark.parametrize(
    "call",
    [
        "cudaMalloc",
        "cudaMallocAsync",
        "cudaMallocHost",
        "cudaHostAlloc",
        "cudaFree",
        "cudaFreeHost",
        "cudaHostRegister",
        "cuMemAlloc_v2",
        "cuMemHostAlloc",
        "cuMemFree_v2",
        "cuMemCreate",
        "cuMemMap",
        "cuMemSetAccess",
        "hipMalloc",
        "hipExtMallocWithFlags",
        "hipHostMalloc",
        "hipFree",
    ],
)
def test_calls_that_take_or_give_back_memory(call: str) -> None:
    assert allocates(call)
    assert not synchronises(call)


@pytest.mark.parametrize(
    "call",
    [
        "cudaLaunchKernel",
        "cudaMemcpyAsync",
        "cudaMemcpy2DAsync",
        "cudaMemsetAsync",
        "cuMemcpyHtoDAsync_v2",
        "hipMemcpyAsync",
        "cudaEventQuery",
        "cudaStreamWaitEvent",
        "cudaHostGetDevicePointer",
        "cudaMemGetInfo",
        "cuMemGetAllocationGranularity",
        "hipPointerGetAttribute",
        "cudaStreamIsCapturing",
    ],
)
def test_other_calls_do_neither(call: str) -> None:
    assert not synchronises(call)
    assert not allocates(call)


def test_copies_of_pageable_memory_are_told_by_the_name_of_the_copy() -> None:
    assert copies_pageable("Memcpy DtoH (Device -> Pageable)")
    assert copies_pageable("Memcpy HtoD (Pageable -> Device)")
    assert not copies_pageable("Memcpy DtoH (Device -> Pinned)")
    assert not copies_pageable("Memcpy DtoD (Device -> Device)")
