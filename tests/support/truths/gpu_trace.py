"""Builds the trace, on a device, of a program whose host launches.

The host runs along a clock of its own; the device starts each work when it was launched and the work before it is done.
Collectives have a stream of their own, which begins with what the other one has made by then.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count

Json = dict[str, object]
Inputs = tuple[list[list[int]], list[str]]
"""Shapes and types of what an operator is given."""

_LAUNCH_LATENCY_US = 3.0
_QUEUE = 1022
_FREED = 20
"""Places that a launch into a full queue waits for: in recorded traces few launches wait, and long."""

_COMPUTE_STREAM = 7
_COMMUNICATION_STREAM = 20


class GpuTrace:
    """A window that is recorded while its methods are called; all times in microseconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self.done = 0.0
        """When the device has done all that was launched, but for collectives."""
        self.communicated = 0.0
        """When it has done the collectives."""
        self.events: list[Json] = []
        self.is_recording = True
        """Otherwise time passes without leaving events."""
        self.host_factor = 1.0
        """What the host does takes so many times as long as it is told."""
        self.device_factor = 1.0
        """Likewise for the device."""
        self._numbers = count(1)
        self._steps = count(7)
        self._ends: list[float] = []

    @contextmanager
    def range(self, name: str, cat: str = "user_annotation") -> Iterator[None]:
        """A named range around what happens inside."""
        begin = self.now
        yield
        self._span(cat, name, begin, self.now)

    def step(self) -> AbstractContextManager[None]:
        return self.range(f"ProfilerStep#{next(self._steps)}")

    def phase(self, name: str) -> AbstractContextManager[None]:
        """One of Lightning's actions."""
        return self.range(f"[pl][profile]{name}")

    def line(self, frame: str) -> AbstractContextManager[None]:
        """A Python function, ``train.py(12): training_step``."""
        return self.range(frame, "python_function")

    def python(self, us: float) -> None:
        """The host does something of which nothing is recorded."""
        self.now += us * self.host_factor

    def kernel(
        self,
        us: float,
        *,
        host_us: float = 8.0,
        op: str = "aten::mul",
        name: str = "elementwise_kernel",
        call_us: float = 4.0,
        inputs: Inputs | None = None,
        geometry: Mapping[str, object] | None = None,
    ) -> None:
        """An operator that takes ``host_us`` on the host and launches one kernel."""
        host_us, call_us = host_us * self.host_factor, call_us * self.host_factor
        begin = self.now
        number = self._launch(begin + (host_us - call_us) / 2, call_us)
        ready = begin + (host_us - call_us) / 2
        self._device("kernel", name, ready, us, number, **(geometry or {}))
        self.now += (host_us - call_us) / 2
        self._span("cpu_op", op, begin, self.now, **{"Sequence number": number}, **_said(inputs))

    def collective(self, us: float, nbytes: int, *, ranks: int, host_us: float = 30.0, name: str = "AllReduce") -> None:
        """A collective of so many bytes; the other stream does not wait for it before :meth:`communication_done`."""
        begin = self.now
        number = self._launch(begin + 5, 4.0 * self.host_factor)
        start = max(self.communicated, self.done, begin + _LAUNCH_LATENCY_US)
        self.communicated = start + us * self.device_factor
        said = {
            "Collective name": "allreduce",
            "dtype": "Float",
            "In msg nelems": nbytes // 4,
            "Out msg nelems": nbytes // 4,
            "Group size": ranks,
            "Process Group Name": "0",
        }
        self._on_device(
            "kernel",
            f"ncclDevKernel_{name}_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            start,
            self.communicated,
            number,
            stream=_COMMUNICATION_STREAM,
            **said,
        )
        self.now = begin + host_us * self.host_factor
        self._span("cpu_op", "c10d::allreduce_", begin, self.now)

    def communication_done(self) -> None:
        """What is launched from now on starts after all collectives."""
        self.done = max(self.done, self.communicated)

    def malloc(self, us: float, *, name: str = "cudaMalloc") -> None:
        """The host takes memory from the device, which it has to wait for."""
        begin = self.now
        self.now += us * self.host_factor
        self._span("cuda_runtime", name, begin, self.now, correlation=next(self._numbers))

    def item(self, *, op: str = "aten::item") -> None:
        """A value is read: the host waits until all work is done."""
        begin = self.now
        number = next(self._numbers)
        end = self._device("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", begin + 1, 1.0, number, bytes=4)
        self._span("cuda_runtime", "cudaMemcpyAsync", begin + 1, end + 1, correlation=number)
        self._span("cuda_runtime", "cudaStreamSynchronize", end + 1.5, end + 2.5)
        self.now = end + 4
        self._span("cpu_op", op, begin, self.now)

    def copy(
        self,
        us: float,
        nbytes: int,
        *,
        kind: str,
        op: str = "aten::to",
        waits: bool | None = None,
        inputs: Inputs | None = None,
    ) -> None:
        """A copy such as ``HtoD (Pageable -> Device)``; of pageable memory the host waits for it."""
        waits = "Pageable" in kind if waits is None else waits
        begin = self.now
        number = next(self._numbers)
        end = self._device("gpu_memcpy", f"Memcpy {kind}", begin + 1, us, number, bytes=nbytes)
        until = end + 1 if waits else begin + 5
        self._span("cuda_runtime", "cudaMemcpyAsync", begin + 1, until, correlation=number)
        if waits:
            self._span("cuda_runtime", "cudaStreamSynchronize", end + 1.5, end + 2.5)
        self.now = end + 4 if waits else begin + 7
        self._span("cpu_op", op, begin, self.now, **_said(inputs))

    def trial(
        self,
        us: Sequence[float],
        *,
        op: str = "aten::conv2d",
        name: str = "cudnn_convolution_kernel",
        plan_us: float = 60.0,
        inputs: Inputs | None = None,
        geometry: Mapping[str, object] | None = None,
    ) -> None:
        """A convolution for which cuDNN times algorithms that take so long; the fastest then computes it.

        As in cuDNN's frontend: the host plans each on an idle or busy device, waits for that, and runs each twice.
        """
        begin = self.now
        self.python(plan_us * len(us))

        def launched(each_us: float) -> None:
            number = self._launch(self.now, 4.0 * self.host_factor)
            self._device("kernel", name, self.now, each_us, number, **(geometry or {}))

        def wait(call: str) -> None:
            start = self.now
            self.now = max(start, self.done) + 2.0
            self._span("cuda_runtime", call, start, self.now)

        wait("cudaDeviceSynchronize")
        for each_us in us:
            launched(each_us)
            wait("cudaDeviceSynchronize")
            launched(each_us)
            wait("cudaEventSynchronize")
        launched(min(us))
        self._span("cpu_op", op, begin, self.now, **_said(inputs))

    def document(self, device: Mapping[str, object] | None = None, **more: object) -> Json:
        """What was recorded, as Kineto writes it.

        Args:
            device: Its properties.
            more: Further entries of the document.
        """
        events = sorted(self.events, key=lambda e: (float(str(e["ts"])), -float(str(e["dur"]))))
        return {
            "schemaVersion": 1,
            "deviceProperties": [device or {"id": 0, "name": "GPU"}],
            **more,
            "traceEvents": events,
        }

    def _launch(self, ready: float, call_us: float) -> int:
        """The call that launches a kernel: it waits for a place in the queue; the host's clock is at its end then."""
        end = ready + call_us
        if len(self._ends) >= _QUEUE and self._ends[-_QUEUE] > self.now:
            waiting = sorted(done for done in self._ends[-2 * _QUEUE :] if done > self.now)
            if len(waiting) >= _QUEUE:
                end = max(end, waiting[len(waiting) - _QUEUE + _FREED] + 1)
        number = next(self._numbers)
        self._span("cuda_runtime", "cudaLaunchKernel", ready, end, correlation=number)
        self.now = end
        return number

    def _device(self, cat: str, name: str, launched: float, us: float, number: int, **args: object) -> float:
        begin = max(self.done, launched + _LAUNCH_LATENCY_US)
        self.done = begin + us * self.device_factor
        self._on_device(cat, name, begin, self.done, number, stream=_COMPUTE_STREAM, **args)
        return self.done

    def _on_device(
        self, cat: str, name: str, begin: float, end: float, number: int, *, stream: int, **args: object
    ) -> None:
        self._ends.append(end)
        args |= {"device": 0, "stream": stream, "correlation": number}
        self._event(cat, name, begin, end, pid=0, tid=stream, args=args)

    def _span(self, cat: str, name: str, begin: float, end: float, **args: object) -> None:
        self._event(cat, name, begin, end, pid=1, tid=1, args=args)

    def _event(self, cat: str, name: str, begin: float, end: float, *, pid: int, tid: int, args: Json) -> None:
        if self.is_recording:
            begin, end = round(begin, 3), round(end, 3)  # whole ns, so that ranges that touch do not overlap
            event: Json = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": begin}
            self.events.append({**event, "dur": round(end - begin, 3), "args": args})


def _said(inputs: Inputs | None) -> Json:
    return {} if inputs is None else {"Input Dims": inputs[0], "Input type": inputs[1]}
