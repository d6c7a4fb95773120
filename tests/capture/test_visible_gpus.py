import pytest
from msgspec.structs import replace

from lightning_gpuprof.capture.nvml.backend import NvmlDevice
from lightning_gpuprof.capture.nvml.visible_gpus import Selection, select_devices


def gpu(index: int, uuid: str, *mig: str, name: str = "A") -> NvmlDevice:
    slices = tuple(NvmlDevice(index=index, uuid=each, name=f"{name} MIG", handle=each) for each in mig)
    return NvmlDevice(index=index, uuid=uuid, name=name, handle=uuid, mig_devices=slices)


FOUR = (gpu(0, "GPU-aa00"), gpu(1, "GPU-bb11"), gpu(2, "GPU-bb22"), gpu(3, "GPU-cc33"))
PARTITIONED = (gpu(0, "GPU-aa00", "MIG-1111", "MIG-2222"), gpu(1, "GPU-bb11"))


def chosen(selection: Selection) -> dict[str, str]:
    return {subject: device.uuid for subject, device in selection.devices}


def visible(value: str) -> dict[str, str]:
    return {"CUDA_VISIBLE_DEVICES": value}


@pytest.mark.parametrize("prefix", ["", "GPU-", "gpu-"])
def test_uuids_are_found_with_and_without_prefix_in_the_given_order(prefix: str) -> None:
    selection = select_devices(FOUR, [f"{prefix}cc33", f"{prefix}AA00"], {})
    assert chosen(selection) == {"gpu0": "GPU-cc33", "gpu1": "GPU-aa00"}
    assert selection.problems == ()


def test_uuids_go_before_the_environment() -> None:
    assert chosen(select_devices(FOUR, ["bb22"], visible("0"))) == {"gpu0": "GPU-bb22"}


def test_a_uuid_that_nvml_does_not_list_is_named_and_the_others_keep_their_numbers() -> None:
    selection = select_devices(FOUR, ["aa00", "ffff", "cc33"], {})
    assert chosen(selection) == {"gpu0": "GPU-aa00", "gpu2": "GPU-cc33"}
    assert selection.problems == ("gpu1 is not measured: NVML does not list its UUID ffff",)


@pytest.mark.parametrize("uuids", [None, []])
def test_without_uuids_and_variable_all_gpus_are_used(uuids: list[str] | None) -> None:
    assert list(chosen(select_devices(FOUR, uuids, {})).values()) == [device.uuid for device in FOUR]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", []),
        ("-1", []),
        ("2", ["GPU-bb22"]),
        ("3,0", ["GPU-cc33", "GPU-aa00"]),
        (" 1 , 2 ", ["GPU-bb11", "GPU-bb22"]),
        ("0,-1,1", ["GPU-aa00"]),
        ("GPU-cc33,GPU-aa00", ["GPU-cc33", "GPU-aa00"]),
        ("GPU-cc", ["GPU-cc33"]),
    ],
)
def test_the_variable_is_read_as_cuda_reads_it(value: str, expected: list[str]) -> None:
    selection = select_devices(FOUR, None, visible(value))
    assert list(chosen(selection).values()) == expected
    assert selection.problems == ()


@pytest.mark.parametrize(
    ("value", "expected", "problem"),
    [
        ("0,7,1", ["GPU-aa00"], "'7' is no GPU that NVML lists"),
        ("GPU-dead,0", [], "'GPU-dead' is no GPU that NVML lists"),
        ("GPU-bb", [], "'GPU-bb' is several GPUs that NVML lists"),
        ("cuda:0", [], "'cuda:0' is no GPU that NVML lists"),
    ],
)
def test_what_does_not_exist_hides_all_that_follows_and_is_named(value: str, expected: list[str], problem: str) -> None:
    selection = select_devices(FOUR, None, visible(value))
    assert list(chosen(selection).values()) == expected
    assert selection.problems == (f"CUDA_VISIBLE_DEVICES={value}: {problem}",)


def test_a_mig_device_is_found_by_its_uuid() -> None:
    assert chosen(select_devices(PARTITIONED, None, visible("MIG-2222"))) == {"gpu0": "MIG-2222"}
    assert chosen(select_devices(PARTITIONED, ["2222"], {})) == {"gpu0": "MIG-2222"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("MIG-GPU-aa00/1/0", {"gpu0": "MIG-1111"}),
        ("mig-gpu-AA00/2/0,MIG-1111", {"gpu0": "MIG-2222", "gpu1": "MIG-1111"}),
        ("MIG-GPU-aa00/9/0", {}),
        ("MIG-GPU-bb11/1/0", {}),
        ("MIG-GPU-aa00/1", {}),
    ],
)
def test_a_mig_device_is_found_by_its_gpu_and_instances(value: str, expected: dict[str, str]) -> None:
    slices = tuple(replace(mig, instance=(number, 0)) for number, mig in enumerate(PARTITIONED[0].mig_devices, 1))
    devices = replace(PARTITIONED[0], mig_devices=slices), PARTITIONED[1]
    selection = select_devices(devices, None, visible(value))
    assert chosen(selection) == expected
    assert bool(selection.problems) == (not expected)


def test_drivers_before_r470_name_mig_devices_so_themselves() -> None:
    old = (gpu(0, "GPU-aa00", "MIG-GPU-aa00/1/0", "MIG-GPU-aa00/2/0"),)
    assert chosen(select_devices(old, None, visible("MIG-GPU-aa00/2/0"))) == {"gpu0": "MIG-GPU-aa00/2/0"}


@pytest.mark.parametrize("environ", [visible("0,1"), {}])
def test_a_partitioned_gpu_shows_its_first_mig_device_to_who_names_none(environ: dict[str, str]) -> None:
    assert chosen(select_devices(PARTITIONED, None, environ)) == {"gpu0": "MIG-1111", "gpu1": "GPU-bb11"}


def test_numbers_of_different_gpus_are_doubted_unless_cuda_counts_by_bus() -> None:
    mixed = (gpu(0, "GPU-aa00", name="slow"), gpu(1, "GPU-bb11", name="fast"))
    (problem,) = select_devices(mixed, None, visible("0")).problems
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in problem
    assert select_devices(mixed, None, {**visible("0"), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}).problems == ()
    assert select_devices(mixed, None, visible("GPU-aa00")).problems == ()
    assert select_devices(mixed, ["aa00"], {}).problems == ()


@pytest.mark.parametrize("value", ["0,0", "1,0,1", "GPU-aa00,GPU-aa00", "GPU-aa,GPU-aa00"])
def test_cuda_shows_nothing_where_a_gpu_is_named_twice(value: str) -> None:
    selection = select_devices(FOUR, None, visible(value))
    assert selection.devices == ()
    (problem,) = selection.problems
    assert problem.startswith(f"CUDA_VISIBLE_DEVICES={value}: '{value.split(',')[-1]}' names a GPU twice")
