"""The GPUs that this process uses, in CUDA's order."""

import re
from collections.abc import Mapping, Sequence

import msgspec

from lightning_gpuprof.capture.nvml.backend import NvmlDevice

_OLD_MIG = re.compile(r"MIG-(?P<uuid>GPU-[^/]+)/(?P<gpu>\d+)/(?P<compute>\d+)", re.IGNORECASE)


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs of this process in CUDA order with their subjects, and what could not be found."""

    devices: tuple[tuple[str, NvmlDevice], ...]
    problems: tuple[str, ...] = ()


def select_devices(devices: Sequence[NvmlDevice], uuids: Sequence[str] | None, environ: Mapping[str, str]) -> Selection:
    """Find the GPUs of this process among those of the machine.

    Args:
        devices: All GPUs in NVML's order.
        uuids: CUDA's UUIDs of the devices that this process uses, in its order, with or without prefix. None or
            empty: all that ``CUDA_VISIBLE_DEVICES`` shows.
        environ: Read for ``CUDA_VISIBLE_DEVICES`` (unset: all; an empty string: none; else indices, ``GPU-`` or
            ``MIG-`` UUIDs or unique beginnings of such, or ``MIG-GPU-<UUID>/<GPU instance>/<compute instance>``, up to
            the first that does not exist, and none at all if one is named twice, as CUDA reads it: CUDA programming
            guide, "CUDA environment variables"; MIG user guide, "Device names"; torch's ``_parse_visible_devices``) and
            ``CUDA_DEVICE_ORDER``.

    Returns:
        In CUDA's order; what was not found is in ``problems``.
    """
    if uuids:
        return _select_by_uuid(devices, uuids)
    return _select_by_environ(devices, environ)


def _select_by_uuid(devices: Sequence[NvmlDevice], uuids: Sequence[str]) -> Selection:
    known = {_without_prefix(device.uuid): device for device in _with_mig(devices)}
    chosen: list[tuple[str, NvmlDevice]] = []
    problems: list[str] = []
    for position, uuid in enumerate(uuids):
        device = known.get(_without_prefix(uuid))
        if device is None:
            problems.append(f"gpu{position} is not measured: NVML does not list its UUID {uuid}")
        else:
            chosen.append((f"gpu{position}", device))
    return Selection(devices=tuple(chosen), problems=tuple(problems))


def _select_by_environ(devices: Sequence[NvmlDevice], environ: Mapping[str, str]) -> Selection:
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    problems: list[str] = []
    by_index = False
    chosen: list[NvmlDevice] = []
    if visible is None:
        by_index = True
        chosen = [_visible_to_cuda(device) for device in devices]
    for token in (visible or "").split(","):
        token = token.strip()
        if not token:
            break
        matches = _matches(devices, token)
        by_index = by_index or token.isdecimal()
        if len(matches) != 1:
            if token != "-1":  # the customary "none from here on"
                many = "several GPUs" if matches else "no GPU"
                problems.append(f"CUDA_VISIBLE_DEVICES={visible}: {token!r} is {many} that NVML lists")
            break
        if matches[0] in chosen:
            problems.append(f"CUDA_VISIBLE_DEVICES={visible}: {token!r} names a GPU twice, so CUDA shows none")
            chosen = []
            break
        chosen.append(matches[0])
    in_bus_order = environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if by_index and not in_bus_order and len({device.name for device in devices}) > 1:
        problems.append(
            "GPUs of different kinds: CUDA numbers the fastest first and NVML by PCI bus, so the names gpu0, gpu1, … "
            "may be mixed up; set CUDA_DEVICE_ORDER=PCI_BUS_ID"
        )
    return Selection(
        devices=tuple((f"gpu{position}", device) for position, device in enumerate(chosen)), problems=tuple(problems)
    )


def _matches(devices: Sequence[NvmlDevice], token: str) -> list[NvmlDevice]:
    if token.isdecimal():
        return [_visible_to_cuda(device) for device in devices if device.index == int(token)]
    if not token.lower().startswith(("gpu-", "mig-")):
        return []
    named = [device for device in _with_mig(devices) if device.uuid.lower().startswith(token.lower())]
    return named or _by_instance(devices, token)


def _by_instance(devices: Sequence[NvmlDevice], token: str) -> list[NvmlDevice]:
    """MIG devices by their GPU and instances: how drivers before R470 name them."""
    found = _OLD_MIG.fullmatch(token)
    if found is None:
        return []
    instance = int(found["gpu"]), int(found["compute"])
    parents = [device for device in devices if device.uuid.lower() == found["uuid"].lower()]
    return [mig for device in parents for mig in device.mig_devices if mig.instance == instance]


def _visible_to_cuda(device: NvmlDevice) -> NvmlDevice:
    """A partitioned GPU shows only its first MIG device to a process that does not name one by UUID."""
    return device.mig_devices[0] if device.mig_devices else device


def _with_mig(devices: Sequence[NvmlDevice]) -> list[NvmlDevice]:
    return [each for device in devices for each in (device, *device.mig_devices)]


def _without_prefix(uuid: str) -> str:
    """A UUID without its prefix: torch gives it without, NVML and the environment with one."""
    return uuid.strip().lower().removeprefix("gpu-").removeprefix("mig-")
