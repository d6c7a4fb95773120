"""Which lines of ours cannot fail in practice, and where a fault need not be told."""

import dis
import functools
from types import CodeType

CANNOT_RAISE = frozenset(
    {
        "NOP",
        "RESUME",
        "CACHE",
        "COPY_FREE_VARS",
        "MAKE_CELL",
        "LOAD_CONST",
        "RETURN_VALUE",
        "POP_TOP",
        "LOAD_FAST",
        "STORE_FAST",
        "LOAD_DEREF",
        "STORE_DEREF",
        "LOAD_CLOSURE",
        "COPY",
        "SWAP",
        "JUMP_FORWARD",
        "JUMP_BACKWARD",
        "POP_EXCEPT",
        "PUSH_EXC_INFO",
        "RERAISE",
        "LOAD_GLOBAL",
        "POP_JUMP_FORWARD_IF_NONE",
        "POP_JUMP_FORWARD_IF_NOT_NONE",
        "IS_OP",
        "RETURN_GENERATOR",
        "CHECK_EXC_MATCH",
        "RETURN_CONST",
    }
)
"""Instructions that move what is there: no allocation that could fail, no code of anybody's."""


@functools.cache
def lines_that_can_raise(code: CodeType) -> frozenset[int]:
    """Lines of a function in which something may raise."""
    found, line = set(), 0
    for instruction in dis.get_instructions(code):
        line = instruction.starts_line or line
        if instruction.opname not in CANNOT_RAISE:
            found.add(line)
    return frozenset(found)


_SAFE_PREFIXES = (
    "except ",
    "with contextlib.suppress(Exception)",
    "with suppress_exceptions()",
    "with tap.place(",
    "with place(",
    "with annotate(",
    "self._fenced(",
    "probe.begin()",
    "probe.start()",
    "begin()",
    "end()",
    "end(self)",
    "collate()",
    "before = tap.enter_region(",
    "tap.enter_region(",
    "self._context.__exit__(",
    "self._push(",
    "self._pop(",
    "self._on_end(",
    "self._ended(",
    "self._edge(",
    "if is_compiling():",
    "if not self._is_logging():",
)
"""Calls of what raises nothing: each line of those is sabotaged itself."""

_SAFE = frozenset(
    {
        # The call that we stand in the place of, which may raise as it may without us.
        "run(data_fetcher)",
        "return run()",
        "advance(data_fetcher)",
        "method(*args, **kwargs)",
        "return method(*args, **kwargs)",
        "step(*args, **kwargs)",
        "on_run_start()",
        "return on_run_end()",
        "return function(*args, **kwargs)",
        "iterator = original(loader)",
        "data = own_fetch(self, index)",
        "index = own_next(self)",
        "self.__class__ = timing",
        "batch = own_data(self)",
        "look(batch)",
        "teardown()",
        "return original(profiler)",
        "return original(instance) if own is None else own(original, instance)",
        "theirs = self._inner.profile(self._action)",
        "self._open.append(theirs)",
        "theirs = self._open.pop()",
        "theirs.__exit__(*sys.exc_info())",
        "return theirs.__exit__(*exc)  # type: ignore[arg-type]",
        "result = theirs.__enter__()",
        "self.inner.describe()",
        "self.inner.start(action_name)",
        "self.inner.stop(action_name)",
        "self._context.__enter__()",
        "return self._context.__enter__()",
        "result = self._context.__enter__()",
        "result = self._context.__exit__(*exc)  # type: ignore[arg-type]",
        "return self._context.__exit__(*exc)  # type: ignore[arg-type]",
        # What was raised goes on.
        "raise",
        # A lock of the interpreter's own; at the statement's end it would stay locked.
        "with self._changed:",
        "with self._lock:",
        # What notes or lets go of a file.
        "self._opened.append(self.journal.close)",
        "os.close(self._descriptor)",
        "os.close(descriptor)",
        "self.file.close()",
        # An attribute that is always there.
        "return bound(self)",
        "return vars(self)[item_name]",
        'return vars(self)["collate_fn"]',
        "before = self._region",
        "own, original = hook.around, hook.original",
        "self._error = sys.exc_info()[1]  # what they are told of",
        "error, self._error = self._error, None",
        "if kind is not None and error is not None:",
        "if self._forward:",
        "sanity = trainer.sanity_checking",
        "if self._running:",
        "self._running = True",
        "self._running = False",
    }
)

_SAFE_FUNCTIONS = frozenset({"annotate.__init__", "OwnFetcher.__init__.<locals>.<lambda>"})
"""Run where the user writes them, and are to raise on a wrong argument; do nothing but call what raises nothing; or let
go of a file in lines that compare and assign."""


def can_fail(text: str, function: str) -> bool:
    """Whether something may raise in a line of a function, in practice, that is not the user's."""
    return not (text in _SAFE or text.startswith(_SAFE_PREFIXES) or function in _SAFE_FUNCTIONS)


_NEED_NOT_WARN = (
    "capture/call_lines.py",
    "capture/conditions/",
    "capture/host/",
    "capture/input/padding.py",
    "capture/memory/held.py",
    "capture/recorder.py",
)
"""What fails there is a value or a line that the report then lacks, or a notice in it."""

_NEED_NOT_WARN_IN = (
    "_NamedRange",
    "_FetchRange",
    "_with_ranges",
    "TorchTracer.stop",
    "_call_lines",
    "_export",
    "LoopEdges._time_loggers",
    "StageSteps._watch_gradients",
    "name_modules",
    "is_lazy",
    "inner_tensors",
    "_parameters",
    "write_trace",
    "BackgroundStop.begin",
    "BackgroundStop._leave_profiler",
    "RequestSignal.__call__",
    "WindowRecording._ask",
    "WindowRecording.__init__.<locals>.<lambda>",
    "WindowController.request",
    "WindowController._close.<locals>.<lambda>",
    "_prepare_trace",
    "_cuda_uuids",
    "_ExceptionSuppressor.__exit__",
    "UserCode.of_this_process",
    "UserCode.shown_path",
    "is_stage",
)
"""A range that a trace then lacks; a trace that is not written, which the report says of its window, or is waited for;
what runs in a signal's handler or in the user's call of torch.profiler; news of a written trace, which the next batch
and the end look for themselves; what torch knows of the GPUs, in whose place an environment variable tells; whether
what is muted has to end the run; the place of a call, a condition or a count of bytes that the report then lacks; the
name of a logger's time."""


def need_not_warn(file: str, function: str) -> bool:
    """Whether a fault in a function may pass without a warning, as one in the warning itself has to."""
    return function == "warn" or file.startswith(_NEED_NOT_WARN) or any(name in function for name in _NEED_NOT_WARN_IN)
