"""What torch's exceptions tell of the moment when no memory was left."""

import pytest
import torch

from lightning_gpuprof.capture.memory.out_of_memory import first_line, out_of_memory_in, phase_and_place, sizes_in

NEW = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.11 GiB of which 512.00 KiB is "
    "free. Including non-PyTorch memory, this process has 78.5 GiB memory in use. If reserved but unallocated "
    "memory is large try"
)
OLD = (
    "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 15.78 GiB total capacity; 14.56 GiB already allocated; "
    "38.44 MiB free; 14.80 GiB reserved in total by PyTorch)"
)


def test_sizes_of_both_forms() -> None:
    assert sizes_in(NEW) == {
        "requested_bytes": 5 << 29,
        "total_bytes": round(79.11 * 2**30),
        "device_free_bytes": 512 << 10,
    }
    assert sizes_in(OLD) == {
        "requested_bytes": 20 << 20,
        "total_bytes": round(15.78 * 2**30),
        "device_free_bytes": round(38.44 * 2**20),
    }
    assert sizes_in("something else") == {}
    assert first_line(NEW).endswith("memory in use.")


def test_a_real_failure_of_the_cpu_s_allocator_is_one() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert out_of_memory_in(caught.value) is caught.value
    assert sizes_in(str(caught.value)) == {"requested_bytes": 1 << 60}


def test_it_is_found_behind_what_was_raised_from_it_and_nothing_else_is() -> None:
    cause = torch.OutOfMemoryError("CUDA out of memory.")
    mine = ValueError("my own words")
    mine.__cause__ = cause
    assert out_of_memory_in(mine) is cause
    assert out_of_memory_in(ValueError("x")) is None
    assert out_of_memory_in(None) is None


def test_the_innermost_phase_and_line_count() -> None:
    def optimizer_step() -> None:
        training_step()

    def training_step() -> None:
        raise MemoryError

    with pytest.raises(MemoryError) as caught:
        optimizer_step()
    phase, place = phase_and_place(caught.value.__traceback__, lambda frame, line: f"{frame.f_code.co_name}:{line}")
    assert (phase, place.partition(":")[0]) == ("forward", "training_step")
