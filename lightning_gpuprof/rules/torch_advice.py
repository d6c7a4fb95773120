"""What torch can do for a run that advice may name: compile the model, update its parameters together."""

import re

from lightning_gpuprof.rules.base import Metrics

_NO_LOG = (2, 13)
"""From this torch on, compiling a ``training_step`` that calls ``self.log`` ends training with InternalTorchDynamoError
(2.13.0 with Lightning 2.6; also without this profiler)."""


def compile_line(metrics: Metrics, options: str = "") -> tuple[str, str]:
    """The line, and what has to be said of it: a sentence after a space, or nothing.

    Args:
        metrics: The run.
        options: Further arguments of ``torch.compile``, after a comma.
    """
    version = re.match(r"(\d+)\.(\d+)", str(metrics.condition("version.torch") or ""))
    if metrics.log_calls is None or version is None or (int(version[1]), int(version[2])) < _NO_LOG:
        return f"model = torch.compile(model{options})", ""
    why = f"in torch {version[0]} a compiled training_step that calls self.log fails"
    return f"self.net = torch.compile(self.net{options})", f" Compile the networks in the model, not the model: {why}."
