"""Which of the processes that NVML lists are ours, on the machine itself and in a container."""

from __future__ import annotations

from pathlib import Path

from lightning_gpuprof.capture.nvml.processes import Family, GpuProcess, summary

PARENTS = {30: 20, 20: 10, 10: 1, 77: 1}


def family(*, sees_all: bool = True) -> Family:
    return Family(pid=10, sees_all=sees_all, parent_of=lambda pid: PARENTS.get(pid, 0))


def process(pid: int, memory: float | None = 5.0) -> GpuProcess:
    return GpuProcess(pid=pid, memory_bytes=memory)


def test_children_and_their_children_are_ours() -> None:
    assert summary([process(10), process(30, 2.0), process(77, 3.0)], [], family()) == (3.0, 0.0, 1.0, 7.0, 3.0)


def test_a_process_with_both_contexts_is_counted_once_among_the_others() -> None:
    assert summary([process(77)], [process(77)], family()) == (1.0, 1.0, 1.0, None, 5.0)


def test_in_a_container_that_hides_our_id_nothing_is_said_of_others() -> None:
    assert summary([process(5000)], None, family(sees_all=False)) == (1.0, None, None, None, None)


def test_in_a_container_where_the_driver_knows_our_id_the_others_are_known() -> None:
    assert summary([process(10), process(5000)], [], family(sees_all=False)) == (2.0, 0.0, 1.0, 5.0, 5.0)


def test_an_empty_list_has_no_others_anywhere() -> None:
    assert summary([], [], family(sees_all=False)) == (0.0, 0.0, 0.0, None, 0.0)


def test_memory_that_the_driver_does_not_tell_is_none_and_not_zero() -> None:
    assert summary([process(10, None), process(77, None), process(78)], [], family()) == (3.0, 0.0, 2.0, None, None)


def test_a_family_is_read_from_the_process_table(tmp_path: Path) -> None:
    for pid, parent in ((4711, 4710), (4710, 1)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (name) with (brackets)) S {parent} 0 0")
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
    found = Family.of_this_process(tmp_path)
    assert found.sees_all
    assert found.parent_of(4711) == 4710
    assert found.parent_of(9999) == 0
    (tmp_path / "self" / "ns" / "pid").unlink()
    (tmp_path / "self" / "ns" / "pid").symlink_to("pid:[4026532999]")
    assert not Family.of_this_process(tmp_path).sees_all
