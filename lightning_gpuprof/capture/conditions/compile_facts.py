"""What of the LightningModule ``torch.compile`` compiles, and how. Nothing of dynamo is imported.

Private parts, seen in torch 2.13: ``OptimizedModule.dynamo_ctx`` with ``callback``, ``_dynamic`` and ``fullgraph``;
``Module._compiled_call_impl``; ``_torchdynamo_orig_backend`` from the callback down to ``torch._TorchCompile…Wrapper``;
functions with ``_torchdynamo_orig_callable``.
"""

import types
from collections.abc import Iterator
from typing import Any

from lightning_gpuprof.capture.conditions.reading import Reader, Subject

MAX_NAMES = 8
_MODES = {"triton.cudagraphs": "reduce-overhead", "max_autotune": "max-autotune"}
"""What ``mode`` becomes in the backend's options."""


def is_wrapper(module: Any) -> bool:
    """Whether a module only stands around one that is compiled."""
    return type(module).__name__ == "OptimizedModule" and type(module).__module__.startswith("torch._dynamo")


def _compiled(subject: Subject) -> Iterator[tuple[str, Any]]:
    """Names of what is compiled, each with its wrapper or compiled function."""
    compiler = getattr(subject.module, "_compiler_ctx", None)  # Lightning keeps it of a compiled LightningModule
    if compiler is not None:
        yield "", compiler.get("original_module") or compiler
    for name, module in subject.modules:
        if is_wrapper(module):
            yield name, module
        elif getattr(module, "_compiled_call_impl", None) is not None:
            yield name, module._compiled_call_impl
    for name, value in (*vars(type(subject.module)).items(), *vars(subject.module).items()):
        # not hasattr: what answers for any name is the user's code
        if name == "_compiled_call_impl" or not isinstance(value, types.FunctionType):
            continue
        if "_torchdynamo_orig_callable" in value.__dict__:
            yield f"{name}()", value


def _state(subject: Subject) -> str:
    names = [name for name, _ in _compiled(subject)]
    if not names:
        return "none"
    return "module" if "" in names else "submodules"


def _names(subject: Subject) -> str | None:
    names = [name or "(the whole module)" for name, _ in _compiled(subject)]
    more = f", and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more or None


def _context(subject: Subject) -> Any:
    """Dynamo's context of the first thing that is compiled; None if nothing is, or it has none."""
    for _, compiled in _compiled(subject):
        context = compiled.get("dynamo_ctx") if isinstance(compiled, dict) else getattr(compiled, "dynamo_ctx", None)
        if context is None:  # a compiled function holds its context in a closure
            cells = getattr(compiled, "__closure__", None) or ()
            context = next((cell.cell_contents for cell in cells if hasattr(cell.cell_contents, "callback")), None)
        if context is not None:
            return context
    return None


def _backend(subject: Subject) -> Any:
    """What was made of the argument ``backend``, under all wrappers."""
    backend = getattr(_context(subject), "callback", None)
    for _ in range(10):
        inner = getattr(backend, "_torchdynamo_orig_backend", None) or getattr(
            backend, "_torchdynamo_orig_callable", None
        )
        if inner is None:
            break
        backend = inner
    return backend


def _backend_name(subject: Subject) -> str | None:
    backend = _backend(subject)
    if backend is None:
        return None
    name = getattr(backend, "compiler_name", None) or getattr(backend, "__name__", None) or type(backend).__name__
    return "inductor" if name == "_TorchCompileInductorWrapper" else str(name)


def _mode(subject: Subject) -> str | None:
    options = getattr(_backend(subject), "config", None)
    if not isinstance(options, dict):
        return None
    modes = [mode for option, mode in _MODES.items() if options.get(option)]
    if len(options) == len(modes) <= 1:
        return modes[0] if modes else "default"
    return ", ".join(f"{option}={value}" for option, value in sorted(options.items()))


def _dynamic(subject: Subject) -> object:
    context = _context(subject)
    if context is None or not hasattr(context, "_dynamic"):
        return None
    return "automatic" if context._dynamic is None else context._dynamic


FACTS: dict[str, Reader] = {
    "compile.state": _state,
    "compile.modules": _names,
    "compile.backend": _backend_name,
    "compile.mode": _mode,
    "compile.dynamic": _dynamic,
    "compile.fullgraph": lambda s: getattr(_context(s), "fullgraph", None),
}
