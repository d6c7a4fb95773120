"""Examples of rules that their pages can do without: both sides of a threshold, further causes, each missing signal."""

from collections.abc import Mapping
from typing import Any

from lightning_gpuprof.model.finding import Severity
from lightning_gpuprof.rules.examples import Example, fires, looks_alike, not_applicable, not_evaluated, quiet

GIB = 2**30
_CLOCK_REASONS = (
    "sw_thermal",
    "hw_thermal",
    "sw_power_cap",
    "app_clocks",
    "hw_power_brake",
    "sync_boost",
    "hw_slowdown",
)


def decides(
    what: str,
    severity: Severity,
    says: str,
    silent: Mapping[str, Any],
    found: Mapping[str, Any],
    saves_ms: float | None = None,
) -> tuple[Example, Example]:
    """A threshold: the run just before it is quiet, the one just after it fires and says so."""
    return quiet(f"{what}: less", **silent), fires(f"{what}: more", severity, says, **found, saves_ms=saves_ms)


def _held(*reasons: tuple[str, float, float | None], **more: Any) -> dict[str, Any]:
    return {"gpu": {"throttle": reasons, **more}}


def _clock(mhz: float | None, *reasons: tuple[str, float, float | None], **more: Any) -> dict[str, Any]:
    return _held(*reasons, clock_mhz=mhz, **more)


def _others(reasons: tuple[str, ...], **more: Any) -> tuple[Example, ...]:
    return tuple(quiet(f"{reason} holds the clock down", **_held((reason, 1.0, 990.0), **more)) for reason in reasons)


_LIMIT = {"values": {"power_limit_w": 400.0}}
_SLOW_LINK = {"gpu": {"values": {"pcie_generation": 3.0, "pcie_width": 8.0}}, "times_ms": {"h2d": 20.0}}
_CLIPPED = {"trainer.gradient_clip_val": 1.0, "model.parameter_tensors": 1006}


def _link(**values: float | None) -> dict[str, Any]:
    return {"gpu": {"values": {f"pcie_{name}": value for name, value in values.items()}}}


def _gradients(gib: float = 16, run: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    allocator = {"allocated_gib": 110.0, "peak_phase": "forward", **changes}
    return {"allocator": allocator, "held": {"gradients_bytes": int(gib * GIB)}, "run": run or {}}


def _foreach(fullest_gib: float = 98.0, run: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    ends = {"forward": fullest_gib, "backward": 90.0, "optimizer": 90.0, "step": 90.0}
    allocator = {"allocated_gib": 112.0, "peak_phase": "optimizer", "ends_gib": ends, **changes}
    return {"allocator": allocator, "run": run or {}}


def _loads(cpu: float | None, delay: float | None = 0.02, **changes: Any) -> dict[str, Any]:
    host = {"usable_cpus": 2.0, "worker_cpus": 2 * (cpu or 0.0), "process_cpus": 0.1}
    return {"each_worker": {"cpu": cpu, "delay": delay}, **host, **changes}


def _waits(**worker: float) -> dict[str, Any]:
    return {"each_worker": {"delay": 0.02, **worker}, "usable_cpus": 2.0, "worker_cpus": 0.1, "process_cpus": 0.1}


def _grows(mib: float, epochs: int = 4, **more: Any) -> dict[str, Any]:
    return {"growing": {"mib": mib, **more}, "epochs": epochs}


def _breaks(*reasons: str, **of_break: Any) -> dict[str, Any]:
    return {"compiled": {"breaks": [{"reason": reason, **of_break} for reason in reasons]}}


def _restarts(iterator_s: float) -> dict[str, Any]:
    short = {"forward": 4.0, "backward": 5.0}
    return {"times_ms": short, "persistent_workers": False, "iterator_s": iterator_s, "first_wait_s": 0.01}


_SAVED = "checkpoint.bytes"
_DDP_COPIES = {
    "device.type": "cuda",
    "device.memory_bytes": 40 * GIB,
    "trainer.world_size": 4,
    "trainer.strategy": "DDPStrategy",
    "model.parameter_bytes": 5 * GIB,
    "model.parameters": 1000,
}


def _copied(ratio: float = 0.1, *, mib: int = 64, **more: Any) -> dict[str, Any]:
    return {"gpu": {}, "copied": {"h2d_ms": mib * 1.0653 / 64 / ratio, "bytes_each": mib * 2**20, **more}}


MORE: dict[str, tuple[Example, ...]] = {
    "h2d-slow-link": (
        *decides("half of the link", "info", "49 % of PCIe 5 x16", _copied(0.51), _copied(0.49)),
        not_evaluated("copies are from pageable memory", "from pinned memory", **_copied(pinned=False)),
        not_evaluated("copies are of 1 MiB", "of 8 MiB or more", **_copied(mib=1)),
        not_evaluated("two steps were traced", "3 copies", **_copied(steps=2)),
    ),
    "bucket-view-off": decides(
        "5 % of the memory",
        "info",
        "gradients twice",
        {"run": {**_DDP_COPIES, "model.trainable_parameters": 399}},
        {"run": {**_DDP_COPIES, "model.trainable_parameters": 401}},
    ),
    "low-clocks": (
        fires(
            "all is set low",
            "warning",
            "1,200 MHz, 61 % of its maximum of 1,980 MHz",
            **_clock(1200.0, ("app_clocks", 1.0, 1200.0)),
            saves_ms=18.7,
        ),
        fires("a sync boost group is", "warning", "slowest GPU", **_clock(1200.0, ("sync_boost", 1.0, 1200.0))),
        fires("nothing holds it down", "warning", "names no reason", **_clock(1200.0)),
        *(
            quiet(f"{reason} holds it down, too", **_clock(900.0, (reason, 0.5, 900.0), ("app_clocks", 1.0, 900.0)))
            for reason in ("sw_power_cap", "sw_thermal", "hw_thermal", "hw_power_brake", "hw_slowdown")
        ),
        quiet("the GPU is not always busy", **_clock(1200.0, values={"utilization_ratio": 0.8})),
        quiet("it is not known how busy it is", **_clock(1200.0, values={"utilization_ratio": None})),
        *decides(
            "four fifths of the highest clock",
            "warning",
            "1,583 MHz, 80 % of its maximum of 1,980 MHz",
            _clock(1585.0, ("app_clocks", 1.0, 1585.0)),
            _clock(1583.0, ("app_clocks", 1.0, 1583.0)),
            saves_ms=9.52,
        ),
        *decides(
            "seven tenths without a reason",
            "warning",
            "1,385 MHz, 70 % of its maximum of 1,980 MHz",
            _clock(1387.0),
            _clock(1385.0),
            saves_ms=14.27,
        ),
        *decides(
            "half of the busy samples",
            "warning",
            "application clocks are set",
            _clock(1200.0, ("app_clocks", 0.6, 1200.0)),
            _clock(1200.0, ("app_clocks", 0.7, 1200.0)),
            saves_ms=18.71,
        ),
        not_evaluated("the clock is not known", "the SM clock", **_clock(None)),
        not_evaluated("the highest is not known", "its maximum", gpu={"facts": {"sm_clock_max_mhz": None}}),
    ),
    "power-brake": (
        fires(
            "the brake held",
            "critical",
            "NVIDIA H200 (gpu0): ... in 75 % of 40 busy samples: SM clock 900 MHz instead of 1,900 MHz",
            **_held(("hw_power_brake", 0.75, 900.0), ("hw_slowdown", 0.75, 900.0), free_mhz=1900.0),
            saves_ms=18.75,
        ),
        *decides(
            "two samples",
            "warning",
            "in 5.0 % of 40 busy samples",
            _held(("hw_power_brake", 1 / 40, 900.0)),
            _held(("hw_power_brake", 2 / 40, 900.0)),
            saves_ms=0,
        ),
        quiet("a slowdown in 4 of 60 samples", **_held(("hw_slowdown", 4 / 60, 900.0), busy=60)),
        fires(
            "in 6", "warning", "A hardware protection of the board", **_held(("hw_slowdown", 6 / 60, 900.0), busy=60)
        ),
    ),
    "power-throttle": (
        fires(
            "the limit is lowered",
            "warning",
            "in 100 % of 40 busy samples: SM clock 1,400 MHz instead of 1,980 MHz ... -i 00000000:1A:00.0 -pl 700",
            **_held(("sw_power_cap", 1.0, 1400.0), **_LIMIT),
            saves_ms=(1 - 1400 / 1980) * 0.95 * 50,
        ),
        fires("the clock is low", "warning", "SM clock 1,670 MHz", **_held(("sw_power_cap", 1.0, 1670.0), **_LIMIT)),
        fires(
            "the clock is hardly lower", "info", "SM clock 1,690 MHz", **_held(("sw_power_cap", 1.0, 1690.0), **_LIMIT)
        ),
        *_others(("sw_thermal", "hw_power_brake", "app_clocks"), **_LIMIT),
        *decides(
            "a fifth of the busy samples for certain",
            "info",
            "in 32 % of 40 busy samples",
            _held(("sw_power_cap", 11 / 40, 1400.0)),
            _held(("sw_power_cap", 13 / 40, 1400.0)),
            saves_ms=0,
        ),
    ),
    "thermal-throttle": (
        fires(
            "both stop it",
            "critical",
            "(gpu0): ... 100 % of 40 busy samples, up to 91 °C: SM clock 990 MHz ... 00000000:1A:00.0",
            **_held(("sw_thermal", 1.0, 990.0), ("hw_thermal", 0.5, 900.0), values={"temperature_c": 91.0}),
            saves_ms=0.5 * 0.95 * 50,
        ),
        fires(
            "windows say how busy it is",
            "warning",
            "in 100 % of 40 busy samples",
            **_held(("sw_thermal", 1.0, 990.0), ("hw_thermal", 0.5, 900.0)),
            idle_ratio=0.6,
            saves_ms=0.5 * 0.4 * 50,
        ),
        fires(
            "the free clock is lower, too",
            "info",
            "SM clock 1,500 MHz instead of 1,600 MHz",
            **_held(("sw_thermal", 0.5, 1500.0), free_mhz=1600.0),
        ),
        *_others(("sw_power_cap", "app_clocks", "hw_power_brake", "sync_boost", "hw_slowdown")),
        *decides(
            "a twentieth of the busy samples for certain",
            "info",
            "in 10 % of 60 busy samples",
            _held(("sw_thermal", 4 / 60, 990.0), busy=60),
            _held(("sw_thermal", 6 / 60, 990.0), busy=60),
            saves_ms=2.37,
        ),
        not_applicable("the model is on the CPU", "runs on the CPU"),
        not_evaluated("the GPU was busy in 19 samples", "19 of the 20 samples of the busy GPU", gpu={"busy": 19}),
        not_evaluated("5 steps are steady", "5 steady steps", **_held(("sw_thermal", 1.0, 990.0)), steps=25),
    ),
    "pcie-degraded": (
        fires(
            "copies hold the step",
            "warning",
            "20.0 ms of each 69.9 ms step ... 17.5 ms less",
            **_SLOW_LINK,
            saves_ms=20.0 * 7 / 8,
        ),
        fires(
            "a window shows the copies",
            "warning",
            "8.00 ms of each 69.9 ms step",
            **_SLOW_LINK,
            copied={"h2d_ms": 8.0},
            saves_ms=8.0 * 7 / 8,
        ),
        *decides(
            "a generation",
            "info",
            "generation 4 x16. That is 50 % of the bandwidth of 5 x16",
            _link(generation=5.0, width=16.0),
            _link(generation=4.0, width=16.0),
            saves_ms=0,
        ),
        fires("half of the lanes", "info", "generation 5 x8. That is 50 %", **_link(generation=5.0, width=8.0)),
        not_evaluated("the generation is not known", "was not measured", **_link(generation=None)),
        not_evaluated("the most is not known", "was not measured", gpu={"facts": {"pcie_width_max": None}}),
        not_evaluated("it was read rarely", "rarely read", gpu={"values": {"pcie_width": 8.0}, "samples": 29}),
        not_evaluated("the GPU was idle", "an idle link is slow", gpu={"values": {"pcie_width": 8.0}, "samples": 100}),
    ),
    "nvlink-down": (
        *decides(
            "a hundred broken packets a second",  # in 400 steps of 50 ms
            "warning",
            "101 NVLink packets with CRC errors per second",
            {"gpu": {"errors": {"nvlink_crc_count": 99.0 * 20}}, "run": {"trainer.world_size": 8}},
            {"gpu": {"errors": {"nvlink_crc_count": 101.0 * 20}}, "run": {"trainer.world_size": 8}},
            saves_ms=0,
        ),
        not_applicable("there are no links", "a single rank hardly uses the links", gpu={}),
    ),
    "gpu-shared": (
        *decides(
            "a context",
            "warning",
            "hold 1 GiB of",
            {"gpu": {"values": {"foreign_processes_count": 2.0, "memory_others_bytes": 0.99 * GIB}}},
            {"gpu": {"values": {"foreign_processes_count": 2.0, "memory_others_bytes": 1.0 * GIB}}},
            saves_ms=0,
        ),
        not_evaluated("there are 19 samples", "19 samples are too few", gpu={"samples": 19}),
    ),
    "util-misleading": (
        *decides(
            "half of the multiprocessors",
            "info",
            "only 49 % of its SMs are active",
            {"gpu": {"values": {"sm_active_ratio": 0.51}}},
            {"gpu": {"values": {"sm_active_ratio": 0.49}}},
            saves_ms=0,
        ),
        not_evaluated("it was not sampled", "the utilization was not measured", gpu={"distinct": None}),
        not_evaluated("the run is short", "less than 5 s", gpu={}, steps=90),
    ),
    "grad-clip-cost": (
        fires(
            "10 of 60 ms",
            "warning",
            "clip_val=1.0: Clipping 1,006 gradients by norm to 1.0 takes 10.0 ms of each 60.0 ms step ... _batches=2",
            times_ms={"clip": 10.0},
            run=_CLIPPED,
            saves_ms=10,
        ),
        fires(
            "a hook of one's own",
            "warning",
            "configure_gradient_clipping: ... _batches=8",
            times_ms={"clip": 10.0},
            run={"trainer.accumulate_grad_batches": 4},
        ),
    ),
    "grads-live-in-forward": (
        looks_alike("they are cleared", **_gradients(gradients_live_in_forward=False)),
        looks_alike("optimization is manual", **_gradients(run={"model.automatic_optimization": False})),
        looks_alike("they are views of buckets", **_gradients(run={"trainer.gradient_as_bucket_view": True})),
        looks_alike("memory is not short", **_gradients(allocated_gib=97.0)),
        *decides(
            "a tenth of the peak", "info", "hold 12 GiB (11 % of the peak)", _gradients(10), _gradients(12), saves_ms=0
        ),
        not_evaluated("nothing is known", "whether forward holds", **_gradients(gradients_live_in_forward=None)),
        not_evaluated("no phase has the peak", "phase of the peak", **_gradients(peak_phase=None)),
    ),
    "uneven-peak-phase": (
        looks_alike("the update is not foreach", **_foreach(run={"model.optimizer_foreach": False})),
        looks_alike("memory is not short", **_foreach(60.0, allocated_gib=97.0)),
        *decides(
            "a tenth of the peak",
            "info",
            "needs 11.5 GiB of temporary memory",
            _foreach(101.0),
            _foreach(100.5),
            saves_ms=0,
        ),
        *(
            fires("the update cannot be fused", "info", says, lacks="(..., fused=True)", **_foreach(run=run))
            for says, run in (
                ("RAdam(..., foreach=False)", {"model.optimizer": "RAdam"}),
                ("AdamW(..., foreach=False)", {"trainer.precision": "16-mixed", "trainer.gradient_clip_val": 1.0}),
                ("whether Lion can", {"model.optimizer": "Lion"}),
            )
        ),
    ),
    "worker-startup": decides(
        "a share of the epoch",
        "info",
        "249 ms of each 1.95 s epoch (13 %)",
        _restarts(0.02),
        _restarts(0.24),
        saves_ms=1.869,
    ),
    "slow-first-steps": (
        fires(
            "it compiles",
            "info",
            "torch.compile: ... TORCHINDUCTOR_CACHE_DIR",
            compiled={"compile_s": 5.5},
            warm_up_s=6.0,
        ),
        *decides(
            "five seconds",
            "info",
            "5.10 s longer than steady ones (24 % of the run)",
            {"warm_up_s": 4.9},
            {"warm_up_s": 5.1},
            saves_ms=12.75,
        ),
        *decides(
            "a minute",
            "info",
            "61.0 s longer than steady ones (1.2 % of the run)",
            {"warm_up_s": 10.0, "steps": 12_000},
            {"warm_up_s": 61.0, "steps": 100_000},
            saves_ms=0,
        ),
    ),
    "loader-io-bound": (
        *decides(
            "half of the making",
            "critical",
            "51 % of the loading time waiting",
            _waits(cpu=0.48),
            _waits(cpu=0.47),
            saves_ms=10,
        ),  # of 99 %
        fires(
            "19 % in a disk",
            "critical",
            "93 % of the loading time",
            lacks="waiting for a disk",
            **_waits(cpu=0.05, disk=0.19),
        ),
        fires("20 % of them", "critical", "waiting for a disk", **_waits(cpu=0.05, disk=0.2)),
    ),
    "loader-cpu-bound": (
        *decides(
            "85 % of the making",
            "critical",
            "84 % of the loading time computing",
            _loads(0.81),
            _loads(0.83),
            saves_ms=10,
        ),  # and 2 % without a CPU, of 99 %
        not_evaluated("run queues are not known", "waited for a CPU was not measured", **_loads(0.95, None)),
        not_evaluated("CPU time is not known", "CPU time of the DataLoader workers was not", **_loads(None)),
        # A batch takes 150 ms of CPU time, a quarter of it 20 ms on 1.9 CPUs; of each 100 ms a step waits 90.
        fires(
            "the CPUs bound a cheaper batch",
            "critical",
            "24 % waiting for a CPU",
            **_loads(0.75, 0.24, items_ms=199.0),
            saves_ms=80.3,
        ),
        fires(
            "others use them",
            "critical",
            "First free the CPUs",
            **_loads(0.75, 0.24, items_ms=199.0, others_cpus=0.8),
            saves_ms=65.9,
        ),
    ),
    "python-overhead": (not_evaluated("no window, on a CPU", "no trace window of ordinary steps"),),
    "host-leak": (
        fires(
            "a list keeps tensors",
            "critical",
            "from 524 MB to 1.6 GB so far. At this rate, the 21.5 GB left last 33 min. ... Net or a",
            **_grows(1024.0),
        ),
        fires("a limit is nearer", "critical", "2.15 GB left", **_grows(100.0, left_gib=200.0, limit_gib=3.0)),
        fires("it lasts an hour", "critical", "3.22 GB left last 51 min", **_grows(100.0, left_gib=3.0)),
        fires("it lasts hours", "warning", "5.91 GB left last 1.6 h", **_grows(100.0, left_gib=5.5)),
        fires("it lasts days", "info", "left last 12 days", **_grows(100.0, left_gib=1000.0)),
        fires("100 s foretell 6,000 s", "critical", "left last 9 min", **_grows(100.0, left_gib=0.5)),
        fires("100 s do not foretell more", "info", "left last 2 h", **_grows(100.0, left_gib=7.0)),
        looks_alike("pages that workers copy after a fork", **_grows(1024.0, of="workers")),
        looks_alike("pages of files", **_grows(1024.0, of="process")),
        looks_alike("it is not known whether it grows evenly", **_grows(1024.0, even=None)),
        *decides(
            "growth in a few jumps",
            "critical",
            "by 2.68 MB per step",
            _grows(1024.0, even=0.4),
            _grows(1024.0, even=0.8),
            saves_ms=0,
        ),
        looks_alike("it may be chance", **_grows(1024.0, p_value=0.005)),
        fires("a dataset that is cached may do so", "warning", "left last 51 min", **_grows(100.0, 2, left_gib=3.0)),
        fires("its end is far", "info", "left last 1.1 h", **_grows(100.0, 2, left_gib=4.0)),
        *decides("64 MiB", "info", "from 524 MB to 592 MB", _grows(63.0), _grows(65.0), saves_ms=0),
        quiet("3 % of 2,000 MiB", **_grows(65.0, first_mib=2000.0)),
        not_evaluated("it was not read", "less than 20 times"),
    ),
    "graph-breaks": (
        fires(
            "two lines break",
            "info",
            "net.py:31 forward: ... in forward() (net.py:31) and forward() (net.py:40): 3 graph breaks",
            compiled={
                "breaks": [{"reason": "Unsupported Tensor.item() call", "count": 2}, {"reason": "print", "line": 40}]
            },
        ),
        *(
            fires(f"the reason is {reason}", "info", f"{says} ... fullgraph=True", **_breaks(reason))
            for reason, says in (
                ("Unsupported Tensor.item() call", "keep the value a tensor (no .item())"),
                ("Data-dependent branching", "replace the branch on a tensor's value by torch.where"),
                ("Call to `torch._dynamo.graph_break()`", "remove the call of torch._dynamo.graph_break()"),
                ("Skip calling `torch.compiler.disable()`d function", "call what is marked torch.compiler.disable"),
                ("something new", "In forward() (net.py:31), move what breaks it out of the compiled code"),
            )
        ),
        fires("no line is known", "info", "torch.compile: ... 1 graph break", **_breaks("print", line=None, file="")),
        fires(
            "a function cannot be compiled at all",
            "info",
            "encoder: 1 function of encoder could not be compiled",
            compiled={"failures": ("Unsupported: Call to `torch._dynamo.graph_break()`",)},
            run={"compile.modules": "encoder"},
        ),
    ),
    "straggler-rank": (
        *(
            fires(
                f"only rank 0 has {phase}",
                "critical",
                f"Rank 0 (host node0) takes 12.0 ms longer ... {where} on rank 0: {what}",
                saves_ms=12.0,
                ranks={"excess_ms": 12.0, "late": 0, "phase": phase},
            )
            for phase, where, what in (
                ("callbacks", "callbacks", "callbacks that run on this rank only"),
                ("logging", "logging", "values that are logged on this rank only"),
            )
        ),
        fires(
            "rank 1 is late now and then for 1 s in all, rank 2 in validation for 6 s",
            "critical",
            "Rank 2 (host node1) spends 12.0 s on its validation batches",
            ranks={"excess_ms": 0.0, "rare_ms": 500.0, "outside_s": 12.0},
        ),
        fires(
            "rank 1 is late now and then for 50 s in all, rank 2 in validation for 6 s",
            "critical",
            "Rank 1 (host node0) takes 25.0 s longer than any other in 2.0 %",
            ranks={"excess_ms": 0.0, "rare_ms": 25_000.0, "outside_s": 12.0},
        ),
        fires(
            "the same on a GPU, where the one has no certain gain and the other has",
            "warning",
            "Rank 1 (host node0) takes 25.0 s longer than any other in 2.0 %",
            ranks={"excess_ms": 0.0, "rare_ms": 25_000.0, "outside_s": 12.0},
            run={"device.type": "cuda"},
        ),
        *decides(
            "late now and then for a twentieth of the time",
            "info",
            "takes 133 ms longer than any other in 2.0 %",
            {"ranks": {"excess_ms": 0.0, "rare_ms": 131.0, "lower": 1.0}},
            {"ranks": {"excess_ms": 0.0, "rare_ms": 133.0, "lower": 1.0}},
        ),
        *decides(
            "a tenth of the step",
            "warning",
            "takes 5.01 ms longer than the others",
            {"ranks": {"excess_ms": 4.99, "lower": 1.0}},
            {"ranks": {"excess_ms": 5.01, "lower": 1.0}},
            saves_ms=5.01,
        ),
        *decides(
            "the same rank in 60 %",
            "critical",
            "the slowest in 61 % of 100 steps",
            {"ranks": {"excess_ms": 12.0, "slowest": 0.59}},
            {"ranks": {"excess_ms": 12.0, "slowest": 0.61}},
            saves_ms=12,
        ),
    ),
    "rank-memory-imbalance": (
        *decides(
            "a fifth of the fullest",
            "info",
            "rank 1 20 GiB: 20 % less",
            {"rank_memory": {"tensors_gib": (24.9, 20.0)}},
            {"rank_memory": {"tensors_gib": (25.1, 20.0)}},
        ),
        *(
            fires(
                f"three tenths of the fullest: {what}",
                severity,
                "Rank 0 needs",
                rank_memory={"tensors_gib": (fullest, emptiest)},
            )
            for what, severity, fullest, emptiest in (
                ("less", "info", 33.0, 23.3),
                ("more", "warning", 33.0, 22.9),
                ("more, with room", "info", 31.0, 20.0),
            )
        ),
        fires("the size is not known", "info", "40 % less", rank_memory={"tensors_gib": (35, 21), "total_gib": None}),
        fires(
            "rank 1 has 5 GiB more in tensors, and others hold 4 GiB more on its GPU",
            "info",
            "Find what only rank 1",
            rank_memory={"tensors_gib": (15.0, 20.0), "outside_gib": (2.0, 6.0)},
        ),
        not_evaluated("the peak is zero", "not a valid number", rank_memory={"tensors_gib": (0.0, 0.0)}),
        not_evaluated(
            "the ranks were not compared", "not compared", run={"trainer.world_size": 4, "device.type": "cuda"}
        ),
    ),
    "dynamic-shapes": (
        *decides("8 shapes", "info", "9 of 13", {"shapes": {"shapes": 8}}, {"shapes": {"shapes": 9}}),
        *decides(
            "15 % of the mean",
            "info",
            "varies by 15 % of its mean",
            {"shapes": {"spread_ratio": 0.149}},
            {"shapes": {"spread_ratio": 0.151}},
        ),
        *decides(
            "a correlation of 0.7", "info", "Put", {"shapes": {"correlation": 0.69}}, {"shapes": {"correlation": 0.71}}
        ),
        fires("eight batches were compared", "info", "Put samples", shapes={"compared": 8}),
        not_evaluated("three steps are steady", "3 steady steps", shapes={}, steady=3),
    ),
    "checkpoint-stall": (
        *(
            fires(what, "critical", "Save less often", lacks="local disk", checkpoint=(20, 6.0), run={_SAVED: size})
            for what, size in (("each has 31 MB", 31_000_000), ("each has 9 MB", 9_000_000), ("of unknown size", None))
        ),
        fires("each has 29 MB", "critical", "29 MB at 96.7 MB/s.", checkpoint=(20, 6.0), run={_SAVED: 29_000_000}),
    ),
    "load-imbalance": decides(
        "a tenth of the step",
        "warning",
        "takes 5.01 ms longer than with equal work",
        {"ranks": {"excess_ms": 0.0, "slowest": 0.25, "imbalance_ms": 4.99, "lower": 1.0}},
        {"ranks": {"excess_ms": 0.0, "slowest": 0.25, "imbalance_ms": 5.01, "lower": 1.0}},
        saves_ms=5.01,
    ),
    "validation-stall": decides(  # beside 20.05 s of steps and gaps
        "a fifth of the run",
        "warning",
        "5.20 s in total, 21 % of",
        {"validation": (4, 4.9), "checkpoint": (0, 0.0)},
        {"validation": (4, 5.2), "checkpoint": (0, 0.0)},
        saves_ms=9.75,
    ),
    "transform-hotspot": decides(
        "half of the making",
        "critical",
        "`Blur` takes 50 % of the time to load a batch",
        {"transforms": {"Blur": 0.51, "Crop": 0.49}, "worker_cpus": 1.9},
        {"transforms": {"Blur": 0.513, "Crop": 0.487}, "worker_cpus": 1.9},
        saves_ms=10,
    ),
}
