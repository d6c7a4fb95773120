"""What the rules have to say about a trace by itself."""

import msgspec

from lightning_gpuprof.model.finding import Finding, NotEvaluated, Verdict


class TraceDiagnosis(msgspec.Struct, kw_only=True, frozen=True):
    """Verdict and findings of a trace, whose steps are taken for those of a run."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    """Most valuable first."""
    need_a_run: tuple[NotEvaluated, ...]
    """Rules that a trace alone cannot answer, and why."""
    caveats: tuple[str, ...] = ()
    """What to keep in mind, as sentences."""
