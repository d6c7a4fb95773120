"""Everything that is computed from one trace, one field per analysis, and what the rules say of it."""

import msgspec

from lightning_gpuprof.model.finding import Finding, NotEvaluated, Verdict
from lightning_gpuprof.model.trace.api_tables import ApiTables
from lightning_gpuprof.model.trace.attribution import Attribution
from lightning_gpuprof.model.trace.by_step import ByStep
from lightning_gpuprof.model.trace.communication import Communication
from lightning_gpuprof.model.trace.events import Events
from lightning_gpuprof.model.trace.health import Health
from lightning_gpuprof.model.trace.idle import Idle
from lightning_gpuprof.model.trace.kernels import KernelFacts
from lightning_gpuprof.model.trace.memory import WindowMemory
from lightning_gpuprof.model.trace.operators import Operators
from lightning_gpuprof.model.trace.roofline import Roofline
from lightning_gpuprof.model.trace.step_trace import StepTrace
from lightning_gpuprof.model.trace.streams import Streams
from lightning_gpuprof.model.trace.sync_points import SyncPoints
from lightning_gpuprof.model.trace.timeline import Timeline


class TraceAnalysis(msgspec.Struct, kw_only=True, frozen=True):
    """One trace, analysed. A field is None if its analysis failed; ``problems`` says why."""

    gpus: tuple[str, ...] = ()
    """GPU models of the machine."""
    rank: int | None = None
    world_size: int | None = None
    health: Health | None = None
    idle: Idle | None = None
    streams: Streams | None = None
    api_tables: ApiTables | None = None
    kernels: KernelFacts | None = None
    operators: Operators | None = None
    step_trace: StepTrace | None = None
    by_step: ByStep | None = None
    memory: WindowMemory | None = None
    timeline: Timeline | None = None
    events: Events | None = None
    attribution: Attribution | None = None
    sync_points: SyncPoints | None = None
    roofline: Roofline | None = None
    communication: Communication | None = None
    problems: tuple[str, ...] = ()
    """Analyses that failed, each with its error; empty if all went well."""


class TraceDiagnosis(msgspec.Struct, kw_only=True, frozen=True):
    """Verdict and findings of a trace, whose steps are taken for those of a run."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    """Most valuable first."""
    need_a_run: tuple[NotEvaluated, ...]
    """Rules that a trace alone cannot answer, and why."""
    caveats: tuple[str, ...] = ()
    """What to keep in mind, as sentences."""
