"""The sampler's queries to NVML's C functions: each answer in our units."""

import contextlib
from collections.abc import Mapping, Sequence

from lightning_gpuprof.capture.nvml import facts
from lightning_gpuprof.capture.nvml.backend import (
    Answer,
    DriverGoneError,
    NvmlDevice,
    NvmlError,
    Query,
    UnsupportedError,
)
from lightning_gpuprof.capture.nvml.calls import Calls, NoEventError, text, uint, ulonglong
from lightning_gpuprof.capture.nvml.gpm import Gpm
from lightning_gpuprof.capture.nvml.processes import Family, GpuProcess, summary
from lightning_gpuprof.model.journal import Value

_OF_WHOLE_GPU = 0xFFFF_FFFF
"""Instance of an event that is of no part of the GPU."""
_MOST_EVENTS = 16
"""Of a GPU at one look."""


class PynvmlBackend:
    """The driver's library; opened by making one. Any call may hang: only a sampler's thread makes them.

    Raises:
        DriverGoneError: No library or no driver on this machine, or nvidia-ml-py is not installed.
        NvmlError: The library refuses.
    """

    def __init__(self) -> None:
        self._calls = Calls()
        self._nvml = self._calls.nvml
        self._ask = self._calls.ask
        self._family = Family.of_this_process()
        self._gpm: dict[str, Gpm] = {}
        """By UUID."""
        self._links: dict[str, list[int]] = {}
        self._events: dict[str, object] = {}
        """By UUID: where the driver puts the errors of a GPU."""

    def devices(self) -> Sequence[NvmlDevice]:
        """All GPUs that NVML can open, in its order; one that is lost or not permitted is left out."""
        found: list[NvmlDevice] = []
        for index in range(self._ask("nvmlDeviceGetCount")):
            try:
                handle = self._ask("nvmlDeviceGetHandleByIndex", index)
                found.append(self._device(index, handle))
            except DriverGoneError:
                raise
            except NvmlError:
                continue
        return found

    def facts(self, device: NvmlDevice) -> Mapping[str, Value]:
        """What does not change while a run goes on; what this GPU or driver does not report is left out."""
        return facts.read(self._calls, device)

    def read(self, device: NvmlDevice, query: Query) -> Answer:
        """Ask the driver once, by the method that is named after the query.

        Args:
            device: Which GPU.
            query: What to ask.

        Returns:
            The values of :data:`VALUES` for the query, in that order and in the units of their names; None for what is
            not known, empty if there are none yet.

        Raises:
            UnsupportedError: There will never be an answer.
            GpuLostError: The GPU is gone.
            DriverGoneError: The driver is gone.
            NvmlError: There is no answer this time.
        """
        answer: Answer = getattr(self, f"_read_{query}")(device)
        return answer

    def process_list(self, device: NvmlDevice) -> list[GpuProcess]:
        """The processes with a compute context."""
        return self._processes(device, "Compute")

    def process_name(self, process: GpuProcess) -> str:
        """What a process runs; raises ``NvmlError`` if the driver does not say."""
        return text(self._ask("nvmlSystemGetProcessName", process.pid))

    def xids(self, device: NvmlDevice) -> Sequence[int]:
        """Codes of the driver's critical errors of a GPU since the call before; none since the first one.

        Of a MIG device, those of the GPU that it is on. Raises ``NvmlError`` if they are not reported.
        """
        events = self._events.get(device.uuid)
        if events is None:
            events = self._ask("nvmlEventSetCreate")
            self._events[device.uuid] = events
            whole = device.handle if device.parent is None else device.parent
            self._ask("nvmlDeviceRegisterEvents", whole, self._nvml.nvmlEventTypeXidCriticalError, events)
        found: list[int] = []
        try:
            for _ in range(_MOST_EVENTS):
                event = self._ask("nvmlEventSetWait_v2", events, 0)
                if device.instance is None or event.gpuInstanceId in (device.instance[0], _OF_WHOLE_GPU):
                    found.append(int(event.eventData))
        except NoEventError:
            pass
        except NvmlError:  # the GPU is lost: first what it had to say
            if not found:
                raise
        return found

    def close(self) -> None:
        """Free what was allocated and shut NVML down; it counts its users, so others in this process do not notice.

        In a child that was forked since the opening there is nothing to undo.
        """
        if not self._calls.is_own_process:
            return
        for gpm in self._gpm.values():
            gpm.close()
        for events in self._events.values():
            with contextlib.suppress(NvmlError):
                self._ask("nvmlEventSetFree", events)
        self._ask("nvmlShutdown")

    def _device(self, index: int, handle: object) -> NvmlDevice:
        try:
            mig_mode = self._ask("nvmlDeviceGetMigMode", handle)[0] == 1
        except UnsupportedError:
            mig_mode = False
        return NvmlDevice(
            index=index,
            uuid=text(self._ask("nvmlDeviceGetUUID", handle)),
            name=text(self._ask("nvmlDeviceGetName", handle)),
            handle=handle,
            mig_mode=mig_mode,
            mig_devices=tuple(self._mig_devices(index, handle)) if mig_mode else (),
        )

    def _mig_devices(self, index: int, parent: object) -> list[NvmlDevice]:
        found: list[NvmlDevice] = []
        for position in range(self._ask("nvmlDeviceGetMaxMigDeviceCount", parent)):
            try:
                handle = self._ask("nvmlDeviceGetMigDeviceHandleByIndex", parent, position)
            except DriverGoneError:
                raise
            except NvmlError:  # places that hold no device answer "not found"
                continue
            found.append(
                NvmlDevice(
                    index=index,
                    uuid=text(self._ask("nvmlDeviceGetUUID", handle)),
                    name=text(self._ask("nvmlDeviceGetName", handle)),
                    handle=handle,
                    parent=parent,
                    instance=self._instance(handle),
                )
            )
        return found

    def _instance(self, handle: object) -> tuple[int, int] | None:
        try:
            of_gpu = self._ask("nvmlDeviceGetGpuInstanceId", handle)
            return int(of_gpu), int(self._ask("nvmlDeviceGetComputeInstanceId", handle))
        except DriverGoneError:
            raise
        except NvmlError:  # only the old way to name MIG devices needs it
            return None

    def _read_utilization(self, device: NvmlDevice) -> Answer:
        rates = self._ask("nvmlDeviceGetUtilizationRates", device.handle)
        return uint(rates.gpu) / 100, uint(rates.memory) / 100

    def _read_memory(self, device: NvmlDevice) -> Answer:
        memory = facts.memory_info(self._calls, device.handle)
        return ulonglong(memory.used), ulonglong(memory.free)

    def _read_power(self, device: NvmlDevice) -> Answer:
        return (uint(self._ask("nvmlDeviceGetPowerUsage", device.handle)) / 1000,)

    def _read_energy(self, device: NvmlDevice) -> Answer:
        return (ulonglong(self._ask("nvmlDeviceGetTotalEnergyConsumption", device.handle)) / 1000,)

    def _read_temperature(self, device: NvmlDevice) -> Answer:
        # nvmlDeviceGetTemperature is deprecated since NVML 13; the V call is not in older drivers and bindings.
        sensor = self._nvml.NVML_TEMPERATURE_GPU
        try:
            return (float(self._ask("nvmlDeviceGetTemperatureV", device.handle, sensor)),)
        except UnsupportedError:
            return (uint(self._ask("nvmlDeviceGetTemperature", device.handle, sensor)),)

    def _read_sm_clock(self, device: NvmlDevice) -> Answer:
        return (uint(self._ask("nvmlDeviceGetClockInfo", device.handle, self._nvml.NVML_CLOCK_SM)),)

    def _read_memory_clock(self, device: NvmlDevice) -> Answer:
        return (uint(self._ask("nvmlDeviceGetClockInfo", device.handle, self._nvml.NVML_CLOCK_MEM)),)

    def _read_clock_events(self, device: NvmlDevice) -> Answer:
        try:
            return (float(self._ask("nvmlDeviceGetCurrentClocksEventReasons", device.handle)),)
        except UnsupportedError:  # its name before driver 535
            return (float(self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", device.handle)),)

    def _read_activity(self, device: NvmlDevice) -> Answer:
        gpm = self._gpm.get(device.uuid)
        if gpm is None:
            gpm = self._gpm[device.uuid] = Gpm(self._calls, device)
        return gpm.read()

    def _read_power_limit(self, device: NvmlDevice) -> Answer:
        return (uint(self._ask("nvmlDeviceGetEnforcedPowerLimit", device.handle)) / 1000,)

    def _read_performance_state(self, device: NvmlDevice) -> Answer:
        state = int(self._ask("nvmlDeviceGetPerformanceState", device.handle))
        if state == self._nvml.NVML_PSTATE_UNKNOWN:
            raise UnsupportedError("Not Available")
        return (float(state),)

    def _read_pcie_link(self, device: NvmlDevice) -> Answer:
        generation = uint(self._ask("nvmlDeviceGetCurrPcieLinkGeneration", device.handle))
        return generation, uint(self._ask("nvmlDeviceGetCurrPcieLinkWidth", device.handle))

    def _read_fan(self, device: NvmlDevice) -> Answer:
        # What the fan is told to do: a blocked one is not seen.
        return (uint(self._ask("nvmlDeviceGetFanSpeed", device.handle)) / 100,)

    def _read_processes(self, device: NvmlDevice) -> Answer:
        compute = self._processes(device, "Compute")
        try:
            graphics: list[GpuProcess] | None = self._processes(device, "Graphics")
        except UnsupportedError:
            graphics = None
        return summary(compute, graphics, self._family)

    def _processes(self, device: NvmlDevice, kind: str) -> list[GpuProcess]:
        function = f"nvmlDeviceGet{kind}RunningProcesses"
        try:
            listed = self._ask(function, device.handle)
        except UnsupportedError:  # drivers before 510
            listed = self._ask(f"{function}_v2", device.handle)
        return [GpuProcess(pid=each.pid, memory_bytes=_bytes_or_none(each.usedGpuMemory)) for each in listed]

    def _read_pcie_throughput(self, device: NvmlDevice) -> Answer:
        nvml = self._nvml
        sent = uint(self._ask("nvmlDeviceGetPcieThroughput", device.handle, nvml.NVML_PCIE_UTIL_TX_BYTES))
        received = uint(self._ask("nvmlDeviceGetPcieThroughput", device.handle, nvml.NVML_PCIE_UTIL_RX_BYTES))
        return sent * 1024, received * 1024  # in KB/s over the 20 ms that the call takes

    def _read_ecc_errors(self, device: NvmlDevice) -> Answer:
        nvml = self._nvml
        kinds = (nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
        return tuple(
            ulonglong(self._ask("nvmlDeviceGetTotalEccErrors", device.handle, kind, nvml.NVML_VOLATILE_ECC))
            for kind in kinds
        )

    def _read_memory_repairs(self, device: NvmlDevice) -> Answer:
        """Ampere and later remap rows; before that, pages were retired."""
        try:
            corrected, uncorrected, pending, failed = self._ask("nvmlDeviceGetRemappedRows", device.handle)
            return float(corrected + uncorrected), None, float(bool(pending) or bool(failed))
        except UnsupportedError:
            nvml = self._nvml
            causes = (
                nvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS,
                nvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,
            )
            pages = [len(self._ask("nvmlDeviceGetRetiredPages", device.handle, cause)) for cause in causes]
            return None, float(sum(pages)), None

    def _read_nvlink_errors(self, device: NvmlDevice) -> Answer:
        nvml = self._nvml
        links = self._links.get(device.uuid)
        if links is None:
            links = self._links[device.uuid] = facts.active_links(self._calls, device.handle)
        if not links:
            raise UnsupportedError("no active NVLink")
        return tuple(
            sum(ulonglong(self._ask("nvmlDeviceGetNvLinkErrorCounter", device.handle, link, kind)) for link in links)
            for kind in (
                nvml.NVML_NVLINK_ERROR_DL_REPLAY,
                nvml.NVML_NVLINK_ERROR_DL_RECOVERY,
                nvml.NVML_NVLINK_ERROR_DL_CRC_FLIT,
            )
        )


def _bytes_or_none(memory: int | None) -> float | None:
    """A process's memory; the driver does not know it under WSL and on MIG for some users."""
    return None if memory is None or memory == 0xFFFF_FFFF_FFFF_FFFF else float(memory)
