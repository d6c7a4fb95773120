from pathlib import Path

import pytest
from fake_machine import OWN, FakeMachine

from lightning_gpuprof.capture.host.proc_file import CostLimiter
from lightning_gpuprof.capture.host.process_tree import descendants, own_pid
from lightning_gpuprof.capture.host.sampler import thread_settings
from lightning_gpuprof.capture.host.sources import examine, pci_numa_node


def test_a_whole_machine_lacks_nothing(machine: FakeMachine) -> None:
    machine.put("sys/devices/system/node/online", "0-1")
    machine.put(f"{machine.v2()}/cpu.max", "50000 100000")
    found = examine(machine.roots, {})
    assert (found.absent(), found.numa_nodes) == ([], 2)
    assert found.children
    facts = found.facts()
    assert facts.pop("host.shm_size_bytes")
    assert facts == {
        "host.cgroup_version": "v2",
        "host.cpu_quota_cpus": 0.5,
        "host.memory_total_bytes": 1000 * 1024,
        "host.swap_total_bytes": 100 * 1024,
    }


def test_what_is_absent_is_none_and_named(machine: FakeMachine) -> None:
    for name in ("schedstat", "io"):
        (machine.proc / str(OWN) / name).unlink()
    for file in (machine.proc / "pressure").iterdir():
        file.unlink()
    machine.roots.shm.rmdir()
    found = examine(machine.roots, {})
    assert (found.shm_size_bytes, found.numa_nodes, found.cgroup_version) == (None, 0, "")
    assert [text.split(" (")[0] for text in found.absent()] == [
        "pressure",
        "waiting for a CPU",
        "bytes read and written",
        "shared memory",
    ]


@pytest.mark.parametrize(
    ("make", "environ", "container"),
    [
        ({}, {}, ""),
        ({"slash/.dockerenv": ""}, {}, "docker"),
        ({"slash/run/.containerenv": ""}, {}, "podman"),
        ({"slash/.singularity.d/x": ""}, {}, "apptainer"),
        ({f"proc/{OWN}/cgroup": "0::/kubepods/burstable/pod1\n"}, {}, "kubernetes"),
        ({f"proc/{OWN}/cgroup": "3:cpu:/docker/abc\n"}, {}, "docker"),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({}, {"APPTAINER_NAME": "image"}, "apptainer"),
    ],
)
def test_containers_are_recognised(
    tmp_path: Path, make: dict[str, str], environ: dict[str, str], container: str
) -> None:
    machine = FakeMachine(tmp_path)
    for path, text in make.items():
        machine.put(path, text)
    found = examine(machine.roots, environ)
    assert found.container == container
    assert "10.0.0.1" not in str(found.facts())


@pytest.mark.parametrize(
    ("options", "hidden"),
    [("rw", ""), ("rw,hidepid=0", ""), ("rw,hidepid=2", "2"), ("rw,hidepid=invisible", "invisible")],
)
def test_hidepid_is_that_of_the_mount_on_proc(machine: FakeMachine, options: str, hidden: str) -> None:
    lines = ["21 1 0:5 / /proc rw - proc proc rw,hidepid=1", f"22 1 0:5 / /proc rw,relatime - proc proc {options}"]
    machine.put(f"proc/{OWN}/mountinfo", "\n".join([*lines, "23 1 0:6 / /mnt/proc rw - proc proc rw,hidepid=4"]))
    assert examine(machine.roots, {}).hidepid == hidden


def test_only_numbers_of_thread_settings_are_taken() -> None:
    found = thread_settings({"OMP_NUM_THREADS": " 4 ", "MKL_NUM_THREADS": "secret", "HOME": "7"})
    assert found.pop("host.torch_interop_threads")
    assert found == {"host.omp_num_threads": 4}


def test_our_number_is_that_of_the_mounted_process_table(tmp_path: Path) -> None:
    assert own_pid(FakeMachine(tmp_path).proc) == OWN
    assert own_pid(tmp_path) == own_pid()


# The process tree ---------------------------------------------------------------------------------------------------


def test_descendants_of_all_threads_and_of_children_are_found(machine: FakeMachine) -> None:
    machine.put("proc/10/task/10/children", "20 21 ")
    machine.put("proc/10/task/11/children", "22 ")
    machine.put("proc/20/task/20/children", "")
    machine.put("proc/21/task/21/children", "30 ")
    machine.put("proc/21/task/25/children", "31 ")
    machine.put("proc/99/task/99/children", "100 ")
    # 31 has ended between the two looks.
    assert descendants(10, machine.proc) == {20, 21, 22, 30, 31}
    assert descendants(10, machine.proc, without=[21]) == {20, 22}  # another rank, with its workers


def test_a_table_that_changes_while_it_is_read_ends(machine: FakeMachine) -> None:
    machine.put("proc/10/task/10/children", "20 ")
    machine.put("proc/20/task/20/children", "10 ")  # numbers were given anew
    assert descendants(10, machine.proc) == {10, 20}


# What limits itself -------------------------------------------------------------------------------------------------


def test_what_is_costly_is_done_as_often_as_its_share_allows() -> None:
    clock_s = 0.0
    limiter = CostLimiter(0.01, lambda: clock_s)

    def costly() -> bool:
        nonlocal clock_s
        clock_s += 0.1
        return True

    assert [second for second in range(100) if limiter.run(second * 10**9, costly)] == list(range(0, 100, 10))


def test_what_costs_nothing_keeps_its_least_interval() -> None:
    limiter = CostLimiter(0.01, lambda: 0.0, at_least_s=5)
    assert [second for second in range(20) if limiter.run(second * 10**9, lambda: True)] == [0, 5, 10, 15]


def test_facts_hold_plain_values(tmp_path: Path) -> None:
    found = examine(FakeMachine(tmp_path).roots, {})
    assert all(isinstance(value, (str, int, float)) for value in found.facts().values())


@pytest.mark.parametrize(
    ("text", "node"),
    [("1\n", 1), ("-1\n", None), ("2\n", None), ("", None)],
    ids=["known", "unknown", "no CPUs", "empty"],
)
def test_the_node_of_a_gpu_is_known_if_the_kernel_says_it_and_the_node_has_cpus(
    machine: FakeMachine, text: str, node: int | None
) -> None:
    machine.put("sys/devices/system/node/online", "0-2")
    machine.put("sys/devices/system/node/node1/cpulist", "8-15")
    machine.put("sys/devices/system/node/node2/cpulist", "\n")
    machine.put("sys/bus/pci/devices/0000:1a:00.0/numa_node", text)
    assert pci_numa_node(machine.roots, "00000000:1A:00.0") == node
    assert pci_numa_node(machine.roots, "00000000:1B:00.0") is None
    assert pci_numa_node(machine.roots, "") is None
