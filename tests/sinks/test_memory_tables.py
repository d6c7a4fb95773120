"""Memory as people read it."""

import msgspec
from sample_report import full_memory

from lightning_gpuprof.model.memory import Memory
from lightning_gpuprof.sinks.memory_tables import memory_lines, memory_tables


def cells(memory: Memory) -> dict[str, list[list[str]]]:
    return {table.title: [[cell.text for cell in row] for row in table.rows] for table in memory_tables(memory)}


def test_every_table_is_there() -> None:
    shown = cells(full_memory())
    assert ["gpu0 train.py headroom", "76 GiB"] in shown["Memory"]
    assert ["gpu0 train.py allocations per step", "1,230"] in shown["Memory"]
    assert ["gpu0 train.py cudaMalloc in steady steps", "7 in 300 steps"] in shown["Memory"]
    assert ["gpu0 train.py cudaFree in steady steps", "-"] in shown["Memory"]
    assert shown["What model and optimizers hold"][0] == [
        "cuda:0", "float32", "400 MiB", "400 MiB", "0 B", "0 B", "800 MiB"
    ]  # fmt: skip
    assert ["train.py:31 training_step", "1 GiB", "12"] in shown[
        "What held the memory at its peak of 3 GiB in steps 200 to 206"
    ]
    assert shown["What held the memory then"][0] == ["activations and everything else on the device", "2 GiB", "-"]
    assert ["backward", "2 GiB"] in shown["Peak of each phase in steps 200 to 206"]
    assert "rises" in shown["Growth of memory"][0]


def test_a_few_lines_say_what_matters() -> None:
    lines = dict(memory_lines(full_memory()))
    device = lines["memory gpu0 train.py:"]
    for words in ("4 GiB of 80 GiB (5.0 %)", "headroom 76 GiB", "in backward", "optimizer state 800 MiB", "retries 2"):
        assert words in device
    assert lines["growing:"].startswith("process rss by 684 KiB")
    assert "20 GiB requested" in lines["out of memory:"]


def test_nothing_measured_is_said_and_not_zero() -> None:
    assert memory_lines(Memory()) == [("memory:", "not measured")]
    (table,) = memory_tables(Memory())
    assert not table.rows
    assert "not measured" in table.absent


def test_what_does_not_grow_surely_is_not_called_growing() -> None:
    memory = full_memory()
    doubtful = msgspec.structs.replace(memory.growth[0], p_value=0.2)
    short = msgspec.structs.replace(memory.growth[0], steps=999)
    assert "growing:" not in dict(memory_lines(msgspec.structs.replace(memory, growth=(doubtful, short))))
