"""What a call of the CUDA or HIP runtime or driver makes the host wait for, by its name."""

import pytest

from lightning_gpuprof.trace.analyses.code.waits import allocates, copies_pageable, synchronises

WAITS = """
cudaStreamSynchronize cudaStreamSynchronize_ptsz cudaDeviceSynchronize cudaEventSynchronize hipDeviceSynchronize
hipStreamSynchronize cuCtxSynchronize cuStreamSynchronize cudaMemcpy cudaMemcpy2D cuMemcpyDtoH_v2 hipMemcpyWithStream
"""
ALLOCATES = """
cudaMalloc cudaMallocAsync cudaMallocHost cudaHostAlloc cudaFree cudaFreeHost cudaHostRegister cuMemAlloc_v2
cuMemHostAlloc cuMemFree_v2 cuMemCreate cuMemMap cuMemSetAccess hipMalloc hipExtMallocWithFlags hipHostMalloc hipFree
"""
NEITHER = """
cudaLaunchKernel cudaMemcpyAsync cudaMemcpy2DAsync cudaMemsetAsync cuMemcpyHtoDAsync_v2 hipMemcpyAsync cudaEventQuery
cudaStreamWaitEvent cudaHostGetDevicePointer cudaMemGetInfo cuMemGetAllocationGranularity hipPointerGetAttribute
cudaStreamIsCapturing
"""


@pytest.mark.parametrize("call", (WAITS + ALLOCATES + NEITHER).split())
def test_calls_wait_for_the_device_take_or_give_back_memory_or_do_neither(call: str) -> None:
    assert (synchronises(call), allocates(call)) == (call in WAITS.split(), call in ALLOCATES.split())


def test_copies_of_pageable_memory_are_told_by_the_name_of_the_copy() -> None:
    assert copies_pageable("Memcpy DtoH (Device -> Pageable)")
    assert copies_pageable("Memcpy HtoD (Pageable -> Device)")
    assert not copies_pageable("Memcpy DtoH (Device -> Pinned)")
    assert not copies_pageable("Memcpy DtoD (Device -> Device)")
