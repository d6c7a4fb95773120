"""Where the training time of a Lightning run goes, what is wrong and what to change.

``Trainer(callbacks=[GpuProfiler()])`` is all a script needs. Importing this package imports neither torch nor
Lightning: those come with the first use of :class:`GpuProfiler`, so that reports can be made on a machine without them.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightning_gpuprof.callback import GpuProfiler
    from lightning_gpuprof.capture.annotated_regions import annotate
    from lightning_gpuprof.errors import GpuProfError
    from lightning_gpuprof.model.config import HostConfig, NvmlConfig, TraceConfig
    from lightning_gpuprof.trial.bare import ab, measure_latency

__version__ = "0.1.0.dev0"
__all__ = [
    "GpuProfError",
    "GpuProfiler",
    "HostConfig",
    "NvmlConfig",
    "TraceConfig",
    "__version__",
    "ab",
    "annotate",
    "measure_latency",
]


_WHERE = {
    "GpuProfError": "lightning_gpuprof.errors",
    "GpuProfiler": "lightning_gpuprof.callback",
    **dict.fromkeys(("HostConfig", "NvmlConfig", "TraceConfig"), "lightning_gpuprof.model.config"),
    "annotate": "lightning_gpuprof.capture.annotated_regions",
    **dict.fromkeys(("ab", "measure_latency"), "lightning_gpuprof.trial.bare"),
}


_CONFIGURED = ("GpuProfiler", "HostConfig", "NvmlConfig", "TraceConfig")
"""What a configuration names."""


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        if "jsonargparse" in sys.modules and not name.startswith("_"):
            import_module(f"{__name__}.errors").answer_for_class(__name__, name, _CONFIGURED)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_WHERE[name]), name)
    return found
