"""All checks of ``gpuprof doctor``, from what is installed; torch and TensorBoard are imported only on demand."""

import os
import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import msgspec

from lightning_gpuprof import __version__
from lightning_gpuprof.capture.host.cgroups import affinity, usable_cpus
from lightning_gpuprof.capture.host.sources import HostSources, Roots
from lightning_gpuprof.capture.host.sources import examine as examine_host
from lightning_gpuprof.capture.nvml.inspection import MachineGpus, inspect_in_child
from lightning_gpuprof.capture.switches import GPUPROF, LIVE, unknown_value
from lightning_gpuprof.cli.check import Check, absent, ok, problem
from lightning_gpuprof.cli.doctor_gpus import NOT_MEASURED, gpu_checks
from lightning_gpuprof.installed import EntryPoint, Installed
from lightning_gpuprof.model import numbers

TAB = "TensorBoard's GPU Profiler tab"
TAB_GROUP = "tensorboard_plugins"
_PLUGIN = "lightning_gpuprof.tensorboard_plugin.plugin"

_PACKAGES: tuple[tuple[str, str], ...] = (
    ("torch", "no training and no trace windows here; reports can still be made"),
    ("lightning", "GpuProfiler needs it or pytorch-lightning; reports can still be made"),
    ("pytorch-lightning", "only needed for scripts that import pytorch_lightning"),
    ("tensorboard", "no TensorBoard: scalars, diagnosis and traces cannot be shown there"),
    ("torch-tb-profiler", "TensorBoard has no PyTorch Profiler tab; Perfetto opens the traces, too"),
    ("nvidia-ml-py", "GPUs cannot be sampled: utilization, memory, power and clocks are not measured"),
    ("psutil", "workers are not found where the kernel does not list child processes"),
    ("numpy", "traces and journals cannot be analysed"),
    ("msgspec", "journals and reports cannot be read"),
    ("rich", "no summary on the terminal"),
    ("plotly", "the tab in TensorBoard draws no figures"),
    ("jsonargparse", "no LightningCLI"),
    ("isal", "gzip by zlib, several times slower: pip install 'lightning-gpuprof[fast]'"),
)
"""Distributions and what the absence of each means."""

_SMALL_SHM_BYTES = 1 << 30
"""Docker's default of 64 MiB is what DataLoader workers fail with; a GiB holds a few batches of images."""


def examine(look_at_gpus: Callable[[], MachineGpus] = inspect_in_child, *, load: bool = False) -> list[Check]:
    """All checks in order.

    Args:
        look_at_gpus: Asks the driver.
        load: Import torch and the tab of TensorBoard, which takes seconds; else their files are looked at.

    Returns:
        Each with its area. A group of checks that fails is one problem, with the error as its meaning.
    """
    installed = Installed()
    gpus = look_at_gpus() if installed.version("nvidia-ml-py") is not None else None
    groups: tuple[tuple[str, Callable[[], list[Check]]], ...] = (
        ("python", _python),
        ("packages", lambda: _packages(installed)),
        ("host", host_checks),
        ("nvml", lambda: _nvml(gpus)),
        ("torch", lambda: (_torch if load else _torch_unloaded)(installed, gpus)),
        ("plugins", lambda: _plugins(installed, load)),
        ("environment", _environment),
    )
    checks: list[Check] = []
    for area, group in groups:
        try:
            found = group()
        except Exception as error:  # a broken driver or package is what a doctor is called for
            found = [problem(area, f"{type(error).__name__}: {error}")]
        checks += [msgspec.structs.replace(check, area=area) for check in found]
    return checks


def _python() -> list[Check]:
    return [
        ok("python", platform.python_version()),
        ok("system", platform.platform(terse=True)),
        ok("lightning-gpuprof", __version__),
    ]


def _packages(installed: Installed) -> list[Check]:
    checks = []
    for name, absence in _PACKAGES:
        version = installed.version(name)
        checks.append(absent(name, absence) if version is None else ok(name, version))
    if (version := installed.version("pynvml")) is not None:
        way_out = "shadows the module of nvidia-ml-py: pip uninstall pynvml, then reinstall nvidia-ml-py"
        checks.append(problem("pynvml", way_out, version))
    return checks


_BUILT = re.compile(r"""^(?:cuda|hip)\b[^=\n]*=\s*['"]([^'"]+)['"]""", re.MULTILINE)
"""In torch/version.py."""
_NO_CUPTI = absent("CUPTI", "no GPU activity in traces; operators and phases are still measured")
_CUPTI_FAILS = (
    "kernels cannot be traced. ERR_NVGPUCTRPERM or CUPTI_ERROR_INSUFFICIENT_PRIVILEGES above: the driver allows it to "
    "administrators only (module option NVreg_RestrictProfilingToAdminUsers=0). Else LD_LIBRARY_PATH may lead to the "
    "libcupti of another CUDA: unset it"
)
_FOR_CPU = absent("CUDA", "this torch is built for the CPU only")
_NO_TORCH = absent("CUDA", "torch is not installed")
_HANGS = "not checked: the driver hangs"
_NO_GPU = "{} no GPU: look at the driver (nvidia-smi) and at CUDA_VISIBLE_DEVICES"


def _torch_unloaded(installed: Installed, gpus: MachineGpus | None) -> list[Check]:
    torch = find_spec("torch")
    if installed.version("torch") is None or torch is None or torch.origin is None:
        return [_NO_TORCH]
    return torch_as_built(Path(torch.origin).parent, gpus)


def torch_as_built(folder: Path, gpus: MachineGpus | None) -> list[Check]:
    """What the files of torch say, without importing it.

    Args:
        folder: Of the package.
        gpus: What the driver says; None: it was not asked.

    Returns:
        One check, of CUDA; where torch is built for the CPU only a second one, of CUPTI.
    """
    found = _BUILT.search((folder / "version.py").read_text(encoding="utf-8"))
    if found is None:
        return [_FOR_CPU, _NO_CUPTI]
    built = f"built for {found[1]}"
    if gpus is not None and gpus.hangs:
        return [problem("CUDA", _HANGS, built)]
    if gpus is not None and not gpus.gpus and "cuda" in found[0]:
        return [absent("CUDA", _NO_GPU.format("the driver has"), built)]
    return [ok("CUDA", built, "gpuprof doctor --load shows whether torch finds the GPU")]


def _torch(installed: Installed, gpus: MachineGpus | None) -> list[Check]:
    if installed.version("torch") is None:
        return [_NO_TORCH]
    torch = import_module("torch")
    built = torch.version.cuda or torch.version.hip
    if built is not None and gpus is not None and gpus.hangs:
        return [problem("CUDA", _HANGS, f"built for {built}")]
    checks = []
    if built is None:
        checks.append(_FOR_CPU)
    elif not torch.cuda.is_available():
        checks.append(absent("CUDA", _NO_GPU.format("torch finds"), f"built for {built}"))
    else:
        names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
        checks.append(ok("CUDA", f"{built}: {names}"))
    activities = {activity.name for activity in torch.profiler.supported_activities()}
    if torch.profiler.kineto_available():
        checks.append(ok("Kineto", ", ".join(sorted(activities))))
    else:
        checks.append(absent("Kineto", "this torch has no Kineto: no trace windows"))
    if "CUDA" in activities and torch.cuda.is_available():
        checks.append(cupti(_recorded_kernels))
    else:
        checks.append(_NO_CUPTI)
    return checks


def cupti(recorded_kernels: Callable[[], int]) -> Check:
    """Whether kernels can be traced, by trying it: the function runs some under ``torch.profiler`` and counts them."""
    try:
        if recorded_kernels():
            return ok("CUPTI", "kernels and copies can be traced")
        why = "recorded no kernel"
    except Exception as error:  # of a torch that keeps its events elsewhere, too
        why = str(error).partition("\n")[0]
    return problem("CUPTI", _CUPTI_FAILS, why)


def _recorded_kernels() -> int:
    torch = import_module("torch")
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        torch.ones(8, device="cuda").add_(1)
        torch.cuda.synchronize()
    return sum(str(event.device_type()).endswith("CUDA") for event in profiler.profiler.kineto_results.events())


def _nvml(gpus: MachineGpus | None) -> list[Check]:
    if gpus is None:
        return [absent("NVML", f"nvidia-ml-py is not installed: {NOT_MEASURED}")]
    return gpu_checks(gpus)


def _plugins(installed: Installed, load: bool) -> list[Check]:
    found = installed.entry_points(TAB_GROUP)
    checks = [tab_check(installed.version("tensorboard"), found, import_module if load else None)]
    # where it is absent, the list of packages says so, and what that means
    checks += [ok("TensorBoard's PyTorch profiler tab", e.value) for e in found if e.name == "torch_profiler"][:1]
    for group in ("lightning.pytorch.callbacks_factory", "pytorch_lightning.callbacks_factory"):
        own = [e for e in installed.entry_points(group) if e.name == "gpuprof"]
        way_out = "GPUPROF=1 has no effect: reinstall lightning-gpuprof"
        checks.append(ok(group, own[0].value) if own else problem(group, way_out))
    return checks


def _environment() -> list[Check]:
    names = ("CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS")
    checks = [_switch(name) for name in (GPUPROF, LIVE) if name in os.environ]
    checks += [ok(name, os.environ[name]) for name in names if name in os.environ]
    if os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
        way_out = "every kernel launch waits for the GPU: unset it, or all times are wrong"
        checks.append(problem("CUDA_LAUNCH_BLOCKING", way_out))
    return checks


def _switch(name: str) -> Check:
    wrong = unknown_value(name, os.environ)
    return problem(name, wrong) if wrong else ok(name, os.environ[name])


def conclusion(checks: Sequence[Check]) -> list[str]:
    """What can be measured here, what cannot, and what to repair, each in a line."""
    by_name = {check.name: check for check in checks}

    def there(*names: str) -> bool:
        return all(by_name[name].state == "ok" for name in names if name in by_name)

    able = [
        ("step times, phases and callbacks", there("torch") and (there("lightning") or there("pytorch-lightning"))),
        ("CPUs and memory of the host", there("msgspec")),
        ("traces of operators", there("torch", "Kineto")),
        ("traces of GPU kernels", there("torch", "CUDA", "CUPTI")),
        ("GPU utilization, memory, power and clocks", there("nvidia-ml-py", "NVML")),
        ("the tab in TensorBoard", there("tensorboard")),
    ]
    problems = [check for check in checks if check.state == "problem"]
    lines = [f"Works here: {', '.join(name for name, works in able if works) or 'nothing'}."]
    if missing := [name for name, works in able if not works]:
        lines.append(f"Not here: {', '.join(missing)}.")
    if not problems:
        return [*lines, "Nothing to fix."]
    named = ", ".join(check.name for check in problems)
    return [*lines, f"{numbers.counted(len(problems), 'problem')} to fix: {named}."]


def tab_check(
    tensorboard: str | None,
    entries: Iterable[EntryPoint],
    load: Callable[[str], object] | None = import_module,
) -> Check:
    """Whether TensorBoard can show our tab.

    Args:
        tensorboard: Its version; None if it is not installed.
        entries: The plugins that TensorBoard would find.
        load: Imports the plugin, with what it needs of TensorBoard; None: it is not imported.

    Returns:
        ``absent`` without TensorBoard, a problem if the entry point is missing or does not load, else ``ok``.
    """
    if tensorboard is None:
        return absent(TAB, "TensorBoard is not installed: pip install tensorboard; report.html has the same views")
    version = f"{__version__} in TensorBoard {tensorboard}"
    own = [entry for entry in entries if entry.name == "gpuprof"]
    if not own:
        return problem(TAB, "its entry point is missing: reinstall lightning-gpuprof", version)
    if load is None:
        return ok(TAB, version)
    try:
        own[0].load()
        load(_PLUGIN)
    except Exception as error:  # TensorBoard's own dependencies fail in many ways
        why = f"{type(error).__name__}: {error}"
        return problem(TAB, f"it cannot be loaded ({why}): pip install --upgrade tensorboard", version)
    return ok(TAB, version)


def host_checks(
    roots: Roots | None = None,
    environ: Mapping[str, str] = os.environ,
    cpus: Callable[[], frozenset[int] | None] = affinity,
    machine_cpus: Callable[[], int | None] = os.cpu_count,
) -> list[Check]:
    """Look at the host.

    Args:
        roots: Where the kernel's files are mounted.
        environ: The environment.
        cpus: Numbers of the CPUs that this process may use.
        machine_cpus: CPUs of the machine.

    Returns:
        Checks of CPUs, then of a container's limits, then of what the kernel counts; without an area.
    """
    roots = roots or Roots()
    sources = examine_host(roots, environ)
    return [*_cpus(roots, sources, cpus(), machine_cpus()), *_limits(sources), *_sources(sources)]


def _cpus(roots: Roots, sources: HostSources, own: frozenset[int] | None, machine: int | None) -> list[Check]:
    allowed = len(own) if own else machine or 1
    usable = usable_cpus(affinity=allowed, cgroup_root=roots.cgroup, proc_root=roots.proc)
    quota = "" if usable == allowed else "limit: the control group's quota is below the affinity"
    nodes = sources.numa_nodes
    return [
        ok("CPUs of the machine", str(machine or "not known")),
        ok("CPUs of the affinity", str(allowed)),
        ok("usable CPUs", numbers.significant(usable), quota),
        ok("NUMA nodes", str(nodes)) if nodes else absent("NUMA nodes", "not known here"),
    ]


def _limits(sources: HostSources) -> list[Check]:
    return [
        ok("control groups", sources.cgroup_version)
        if sources.cgroup_version
        else absent("control groups", "limits of a container cannot be seen"),
        ok("CPU quota", _or_none(sources.quota_cpus, lambda quota: f"{numbers.significant(quota)} CPUs")),
        ok("memory limit", _or_none(sources.memory_limit_bytes, numbers.size)),
        ok("container", sources.container or "none recognised"),
        _shared_memory(sources.shm_size_bytes),
    ]


def _shared_memory(size: float | None) -> Check:
    name = "/dev/shm"
    if size is None:
        return problem(name, "DataLoader workers cannot pass batches through shared memory: mount a tmpfs there")
    if size < _SMALL_SHM_BYTES:
        way_out = "give the container more, as docker run --shm-size=8g"
        return problem(name, f"DataLoader workers may run out of it: {way_out}", numbers.size(size))
    return ok(name, numbers.size(size))


def _or_none(value: float | None, shown: Callable[[float], str]) -> str:
    return "none" if value is None else shown(value)


def _sources(sources: HostSources) -> list[Check]:
    wanted = (
        ("pressure (PSI)", sources.pressure, "waiting for CPU, memory or disks is not measured: boot with psi=1"),
        ("waiting for a CPU (schedstat)", sources.run_delay, "threads waiting for a CPU are not measured"),
        ("bytes read and written (io)", sources.io_bytes, "reads from disk and page cache look alike"),
        (
            "waiting for disks (delay accounting)",
            sources.io_wait,
            "disk waits are estimated; exact with sysctl kernel.task_delayacct=1",
        ),
        (
            "children of a process",
            sources.children,
            "workers are found by searching the whole process table, less often",
        ),
    )
    checks = [ok(name, "readable") if readable else absent(name, meaning) for name, readable, meaning in wanted]
    hidden = sources.hidepid
    meaning = "processes of other users are hidden; their CPU time is known in sum"
    checks.append(ok("hidepid of /proc", hidden or "off", meaning if hidden else ""))
    return checks
