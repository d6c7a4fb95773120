"""What torch can do for a run that advice may name: compile the model, update its parameters together."""

import re

from lightning_gpuprof.rules.base import Change, Metrics

BEFORE_FIT = "before trainer.fit"
IN_MODULE = "in the LightningModule"
_AFTER_INIT = "at the end of the LightningModule's __init__"

_NO_LOG = (2, 13)
"""From this torch on, compiling a ``training_step`` that calls ``self.log`` ends training with InternalTorchDynamoError
(2.13.0 with Lightning 2.6; also without this profiler)."""

_REMEDIES_OF_BREAKS = (
    (
        ("item", "scalar_outputs", "tensor.tolist"),
        "keep the value a tensor (no .item()), or set torch._dynamo.config.capture_scalar_outputs = True",
    ),
    (("print",), "move the print out of the compiled code"),
    (("data-dependent", "data dependent"), "replace the branch on a tensor's value by torch.where or torch.cond"),
    (("graph_break",), "remove the call of torch._dynamo.graph_break()"),
    (("disable",), "call what is marked torch.compiler.disable before or after the compiled part"),
    (("logging", "logger", "warn"), "log outside the compiled code"),
)
"""Words in dynamo's reason for a graph break, and what helps."""


def remedy_of_break(reason: str) -> str:
    """What to do about a graph break or a function that was not compiled.

    Args:
        reason: Dynamo's.

    Returns:
        A sentence without its capital letter and its full stop.
    """
    known = (text for words, text in _REMEDIES_OF_BREAKS if any(word in reason.lower() for word in words))
    return next(known, "move what breaks it out of the compiled code")


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
