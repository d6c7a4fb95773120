"""Runs with one known fault each, and runs with all of them."""

import host_builder
import msgspec
from compile_builder import compiled, graph_break, recompile
from metrics_builder import build, busy_machine, outliers, replace, share
from traced_builder import gpu, window
from uneven_builder import of_fifths, of_speed_levels, stretch

from lightning_gpuprof.model.device import DeviceEnergy
from lightning_gpuprof.model.metrics import Metrics

FAULTS: dict[str, Metrics] = {
    "input": build(times_ms={"data_wait": 60.0}, num_workers=0, worker_cpus=None),
    "workers": build(times_ms={"data_wait": 60.0}, num_workers=1, fetch_waited_ratio=0.99, worker_cpus=0.1),
    "callback": build(times_ms={"callbacks": 40.0}, callbacks_ms={("Slow", "on_train_batch_end"): 39.0}),
    "logging": build(times_ms={"logging": 25.0}),
    "blocked": build(times_ms={"forward": 60.0}, blocked_ms={"forward": 45.0}, process_cpus=0.4),
    "validation": build(validation=(4, 30.0)),
    "checkpoint": build(checkpoint=(10, 15.0)),
    "startup": build(persistent_workers=False, iterator_s=2.0, first_wait_s=3.0),
    "stalls": build(stalls=outliers(count=12, stall_ms=900, phases="backward", steps=380, period_ms=50.0)),
    "all": build(
        times_ms={"data_wait": 60.0, "callbacks": 40.0, "logging": 25.0, "forward": 60.0},
        num_workers=0,
        worker_cpus=None,
        callbacks_ms={("Slow", "on_train_batch_end"): 39.0},
        blocked_ms={"forward": 45.0},
        process_cpus=0.4,
        validation=(4, 60.0),
        checkpoint=(10, 30.0),
        stalls=outliers(count=12, stall_ms=2500, phases="backward", steps=380, period_ms=200.0),
    ),
}


def everything_is_wrong() -> Metrics:
    return build(
        times_ms={"data_wait": 60.0, "callbacks": 40.0, "logging": 25.0, "forward": 60.0},
        num_workers=1,
        persistent_workers=False,
        fetch_waited_ratio=0.9,
        iterator_s=2.0,
        first_wait_s=3.0,
        callbacks_ms={("Slow", "on_train_batch_end"): 39.0},
        blocked_ms={"forward": 45.0},
        process_cpus=0.4,
        validation=(4, 60.0),
        checkpoint=(10, 30.0),
        stalls=outliers(count=12, stall_ms=2500, phases="backward", steps=380, period_ms=200.0),
        idle_ratio=0.4,
        host=busy_machine(0.3),
    )


def everything_is_wrong_on_a_gpu() -> Metrics:
    facts = window(
        period_ms=200.0,
        causes={"launch": 0.2, "host_sync": 0.2, "data": 0.1, "allocator": 0.05},
        exposed_communication=0.2,
        uploads=0.1,
        host_ms={"data_wait": 60.0, "forward": 60.0},
        inflation=1.3,
        sm_efficiency=0.3,
        at_roof={("memory", 0.7): 0.5, ("compute", 0.2): 0.3},
    )
    device = gpu(
        utilization=0.5,
        sm=0.3,
        dram=0.2,
        tensor=0.1,
        clock_mhz=1200.0,
        reasons={"sw_thermal": 0.6, "sw_power_cap": 0.2},
    )
    device = msgspec.structs.replace(
        device, energy=DeviceEnergy(total_j=4e4, per_step_j=32.0, mean_w=640.0, covered_ratio=0.98)
    )
    wrong = everything_is_wrong()
    targets = {"gpuprof.target": "1.5x", "gpuprof.price_per_gpu_hour": 2.5, "device.type": "cuda"}
    return replace(wrong, run={**wrong.run, **targets}, windows=(facts, facts), devices=(device,), blocked=None)


_FACTS = {
    "model.parameter_tensors": 2000,
    "model.parameter_bytes": 64_000,
    "model.optimizer": "AdamW",
    "trainer.gradient_clip_val": 1.0,
}


def everything_is_wrong_in_steps() -> Metrics:
    base = build(times_ms={"optimizer": 60.0, "clip": 10.0}, run=_FACTS, usable_cpus=1.0)
    speed_levels = of_speed_levels(stretch(), stretch({"data_wait": 50.0}, start=100)).evenness
    drift = of_fifths("forward", (0.0, 10.0, 20.0, 30.0, 40.0)).evenness.drift
    collecting, growing = host_builder.collecting(0.3), host_builder.growing(1024.0)
    return replace(
        base,
        evenness=type(speed_levels)(
            speed_levels=speed_levels.speed_levels, drift=drift, warmup_steps=10, warmup_excess_s=8.0
        ),
        compile=compiled([recompile(i) for i in range(50, 80)], [graph_break("print")], limit_hits=1).compile,
        host=type(growing)(gc=collecting.gc, growth=growing.growth, machine=growing.machine),
        cpu=replace(base.cpu, run_delay_ratio=0.3, run_delay=share(30.0, 100.0), run_delay_samples=40),
        lr_scheduler=share(10.0, 100.0),
        overhead={"share_of_step_ratio": 0.02, "background_cpu_ratio": 0.05, "windows_s": 8.0},
    )
