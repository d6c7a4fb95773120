"""Names the calls of the model's modules to torch's profiler, so that a window knows them without stacks."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any

import torch
from torch.nn.modules import module as torch_module

from lightning_gpuprof.capture.compilation import counters_now
from lightning_gpuprof.capture.conditions.compile_facts import is_wrapper
from lightning_gpuprof.capture.fence import suppress_exceptions
from lightning_gpuprof.model.trace.attribution import MODULE, MODULE_FACTS

_MAX_LEVELS = 16


def name_modules(model: Any, most: int) -> Callable[[], object] | None:
    """Put ranges around the calls of a model's modules on this thread, and note their classes and parameters.

    Args:
        model: With ``named_modules()``.
        most: At most so many modules: whole levels of the tree, outermost first.

    Returns:
        What ends it. None if nothing is named: torch.compile is used, whose code would be compiled again for the sake
        of the hooks, or this torch has no such ranges.
    """
    modules = list(model.named_modules())
    compiles = any(is_wrapper(one) or getattr(one, "_compiled_call_impl", None) is not None for _, one in modules)
    if compiles or (counters_now() or {}).get("frames") or not hasattr(torch._C._profiler, "_RecordFunctionFast"):
        return None
    called = [(name, one) for name, one in modules if not isinstance(one, (torch.nn.ModuleList, torch.nn.ModuleDict))]
    of_level = Counter(_level(name) for name, _ in called)
    levels = sum(count <= most for count in accumulate(of_level[level] for level in range(_MAX_LEVELS)))
    named = [(name or type(one).__name__, one) for name, one in called if _level(name) < levels]
    with suppress_exceptions():
        facts = {name: (type(one).__name__, _parameters(one)) for name, one in named}
        torch._C._autograd._add_metadata_json(MODULE_FACTS, json.dumps(facts))
    return _with_ranges({id(one): f"{MODULE}{name}" for name, one in named})


def _parameters(module: Any) -> int | None:
    """Their number; None where they are made in the first call, as by ``torch.nn.LazyLinear``."""
    try:
        return sum(int(tensor.numel()) for tensor in module.parameters())
    except ValueError:
        return None


def _level(name: str) -> int:
    """Of a module in the tree: 0 for the model itself."""
    return name.count(".") + 1 if name else 0


def _with_ranges(names: Mapping[int, str]) -> Callable[[], None]:
    """Uses torch's hooks for all modules: on a module they would be copied and saved with it.

    A range costs a fifteenth of :class:`torch.profiler.record_function`; Kineto lists it among the operators.
    """
    new_range = torch._C._profiler._RecordFunctionFast
    opened: list[tuple[int, Any]] = []
    thread, this_thread = threading.get_ident(), threading.get_ident
    is_compiling = torch.compiler.is_compiling

    def before(module: object, arguments: object) -> None:
        if is_compiling():  # torch.compile knows no fence; to it this is a constant
            return
        with suppress_exceptions():  # a range less in the trace
            name = names.get(id(module))
            if name is not None and this_thread() == thread:
                named = new_range(name)
                named.__enter__()
                opened.append((id(module), named))

    def after(module: object, arguments: object, result: object) -> None:
        if is_compiling():
            return
        with suppress_exceptions():
            if opened and opened[-1][0] == id(module) and this_thread() == thread:
                opened.pop()[1].__exit__(None, None, None)

    hooks = (
        torch_module.register_module_forward_pre_hook(before),
        torch_module.register_module_forward_hook(after, always_call=True),
    )

    def end() -> None:
        for hook in hooks:
            hook.remove()
        while opened:
            opened.pop()[1].__exit__(None, None, None)

    return end
