"""What torch can do for a run that advice may name: compile the model, update its parameters together."""

import re

from lightning_gpuprof.rules.base import Change, Metrics

BEFORE_FIT = "before trainer.fit"
IN_MODULE = "in the LightningModule"
_AFTER_INIT = "at the end of the LightningModule's __init__"

_NO_LOG = (2, 13)
"""From this torch on, compiling a ``training_step`` that calls ``self.log`` ends training with InternalTorchDynamoError
(2.13.0 with Lightning 2.6; also without this profiler)."""


def compile_model(metrics: Metrics, options: str = "") -> tuple[str, Change]:
    """How to compile the model: sentences, and the line.

    Args:
        metrics: The run.
        options: Further arguments of ``torch.compile``, after a comma.

    Returns:
        The sentences name that line and where it goes; the change has both.
    """
    version = re.match(r"(\d+)\.(\d+)", str(metrics.condition("version.torch") or ""))
    if metrics.log_calls is None or version is None or (int(version[1]), int(version[2])) < _NO_LOG:
        line = f"model = torch.compile(model{options})"
        return f"Compile the model {BEFORE_FIT}: {line}.", Change(add=(line,), place=BEFORE_FIT)
    line = f"self.net = torch.compile(self.net{options})"
    return (
        f"Compile the networks in the model {_AFTER_INIT}: {line}. Why not the model: in torch {version[0]} a compiled "
        "training_step that calls self.log fails.",
        Change(add=(line,), place=_AFTER_INIT),
    )
