"""Stands in for ``trainer.profiler``: every action of Lightning goes to the step clock and on to the user's profiler.

Nothing in Lightning caches the profiler, so that one assignment in ``setup()`` sees every action. For actions that are
not timed it answers with one shared empty context, which is cheaper than Lightning's own empty profiler.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import ContextDecorator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lightning_gpuprof.capture.actions import ANNOTATED, classify
from lightning_gpuprof.capture.fence import must_propagate
from lightning_gpuprof.capture.step_clock import NULL_CONTEXT, Context, StepClock, Untimed
from lightning_gpuprof.model.phases import Phase, Region

if TYPE_CHECKING:
    from lightning.pytorch.profilers import Profiler

MAX_ANNOTATED = 400
"""Regions with a slot, by name, place and mode. A row of the journal has a place for each: names that are made up as
the run goes, or a recursion, must not fill the memory."""
OTHER_REGIONS = "other regions"


class _ContextTable(dict[str, Context]):
    """Action name → context; a context is made when its action is seen for the first time."""

    def __init__(
        self,
        make: Callable[[str], Context],
        instead: Callable[[str, Exception], Context],
        theirs: Callable[..., Context] | None,
    ) -> None:
        super().__init__()
        self._make = make
        self._instead = instead

        def profile(action_name: str) -> Context:
            try:
                return self[action_name]
            except Exception as error:
                if must_propagate(error):
                    raise
                return instead(action_name, error)

        def profile_with(action_name: str, *more: object, **settings: object) -> Context:
            try:
                if theirs is None or not (more or settings):
                    return self[action_name]
            except Exception as error:
                if must_propagate(error):
                    raise
                return instead(action_name, error)
            return theirs(action_name, *more, **settings)  # only the user's own code knows what these are

        self.profile: Callable[..., Context] = profile if theirs is None else profile_with
        """As a profiler's, in the time of ``__getitem__``, which takes no keyword."""

    def __missing__(self, action: str) -> Context:
        try:
            context = self[action] = self._make(action)
        except Exception as error:  # an action of a shape that nobody foresaw must not stop training
            if must_propagate(error):
                raise
            context = self[action] = self._instead(action, error)
        return context


class _Forwarded(ContextDecorator):
    """Runs the user's own profiling of an action inside ours; may be nested in itself."""

    def __init__(self, inner: Profiler, action: str, context: Context) -> None:
        self._inner = inner
        self._action = action
        self._context = context
        self._open: list[Context] = []

    def __enter__(self) -> object:
        theirs = self._inner.profile(self._action)
        self._open.append(theirs)
        try:
            result = theirs.__enter__()
        except BaseException:
            self._open.pop()
            raise
        self._context.__enter__()
        return result

    def __exit__(self, *exc: object) -> bool | None:
        theirs = self._open.pop()
        try:
            self._context.__exit__(*exc)  # type: ignore[arg-type]
        except BaseException:  # what has to end the run ends it with their profiler closed
            theirs.__exit__(*sys.exc_info())
            raise
        return theirs.__exit__(*exc)  # type: ignore[arg-type]


@dataclass(eq=False, repr=False)
class _ExceptionHookEnd:
    """Around an ``on_exception``: if it fails, Lightning calls nothing any more, and this is the end of the stage."""

    _context: Context
    _on_end: Callable[[BaseException | None], None]
    _on_failure: Callable[[Exception], None]
    _error: BaseException | None = None

    def __enter__(self) -> None:
        try:
            self._error = sys.exc_info()[1]  # what it is called for
            self._context.__enter__()
        except Exception as error:
            self._on_failure(error)

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        try:
            self._context.__exit__(None, None, None)
            error, self._error = self._error, None
            if kind is not None and error is not None:
                self._on_end(error)
        except Exception as failure:
            self._on_failure(failure)


def _same(inner: Profiler) -> Profiler:
    return inner


class ProfilerTap:
    """A profiler in Lightning's sense that forwards to ``inner`` and charges time to ``clock``.

    Args:
        inner: The profiler that the trainer had.
        clock: Where time is charged.
        forward: False if ``inner`` does nothing (Lightning's ``PassThroughProfiler``), which saves the call.
        manual: Manual optimization is in use.
        overridden: Per-batch hooks in which something happens.
        does_nothing: Whether a callback, given by its state key, leaves a hook as Lightning's empty base class has it;
            such hooks are not timed.
        on_failure: Called when an action's context could not be made; the action is not timed then.
        on_end: Called when Lightning has the profiler describe itself, the last thing that a stage does; also when
            somebody's ``on_exception`` fails, which is the last thing then, with the exception that it was called for.
    """

    _is_made = False

    def __init__(
        self,
        inner: Profiler,
        clock: StepClock,
        *,
        forward: bool,
        manual: bool,
        overridden: frozenset[str],
        does_nothing: Callable[[str, str], bool],
        on_failure: Callable[[Exception], None],
        on_end: Callable[[BaseException | None], None],
    ) -> None:
        self.inner = inner
        self._on_end = on_end
        self._does_nothing = does_nothing
        self._on_failure = on_failure
        self._clock = clock
        self._forward = forward
        self._manual = manual
        self._overridden = overridden
        self._region: Region = "main"
        self._cpu = False
        self._tables: dict[tuple[Region, bool], _ContextTable] = {}
        self._annotated: dict[tuple[str, int, bool], Context] = {}
        self.colors: dict[str, str] = {}
        """Of the user's regions that have one, by name."""
        self._shortcuts: dict[tuple[str, Region, bool], Context] = {}
        self._active = self._table("main", False)
        self.profile: Callable[[str], Context] = self._active.profile
        clock.set_cpu_mode_listener(self._set_cpu_mode)
        self._is_made = True

    # What Lightning calls -------------------------------------------------------------------------------------------

    def start(self, action_name: str) -> None:
        """Begin an action that has no ``with`` block."""
        if self._forward:
            self.inner.start(action_name)
        try:
            context = self._timed_only(action_name) if self._forward else self._active[action_name]
            context.__enter__()
        except Exception as error:
            self._on_failure(error)

    def stop(self, action_name: str) -> None:
        """End an action that was begun with :meth:`start`."""
        try:
            context = self._timed_only(action_name) if self._forward else self._active[action_name]
            context.__exit__(None, None, None)
        except Exception as error:
            self._on_failure(error)
        if self._forward:
            self.inner.stop(action_name)

    def describe(self) -> None:
        """The user's profiler describes itself; then the stage is over."""
        try:
            self.inner.describe()
        finally:
            self._on_end(None)

    @property
    def _lightning_module(self) -> object:
        return getattr(self.inner, "_lightning_module", None)

    @_lightning_module.setter
    def _lightning_module(self, module: object) -> None:
        self.inner._lightning_module = module  # type: ignore[attr-defined]

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The user's profiler's class: ``isinstance(trainer.profiler, X)`` in user code keeps its answer."""
        return type(self.inner)

    def __reduce__(self) -> tuple[object, ...]:
        """A copy or pickle of the trainer holds the user's profiler."""
        return _same, (self.inner,)

    def __getattr__(self, name: str) -> object:
        if name == "inner":  # not constructed yet: copying and unpickling ask for attributes early
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __setattr__(self, name: str, value: object) -> None:
        if self._is_made and name not in vars(self) and not hasattr(type(self), name):
            setattr(self.inner, name, value)  # a setting of the user's
        else:
            object.__setattr__(self, name, value)

    # What the session uses ------------------------------------------------------------------------------------------

    def enter_region(self, region: Region) -> Region:
        """Let the same actions go to the slots of another loop; returns the region before."""
        before = self._region
        try:
            self._region = region
            self._activate()
        except Exception as error:
            self._on_failure(error)
        return before

    def place(self, name: str, phase: Phase, *, is_rest: bool = False) -> Context:
        """A context for a place that Lightning does not name, in the region and mode of now.

        Args:
            name: What the report calls it.
            phase: Phase of its time.
            is_rest: It has no inside: it is the rest of the action that is current.

        Returns:
            The same one for the same name, region and mode; after a failure one that does nothing.
        """
        try:
            key = (name, self._region, self._cpu)
            found = self._shortcuts.get(key)
            if found is None:
                slot = self._clock.slot(name, phase, self._region)
                make = self._clock.mark if is_rest else self._clock.context
                found = self._shortcuts[key] = make(slot, cpu=self._cpu)
            return found
        except Exception as error:
            self._on_failure(error)
            return NULL_CONTEXT

    def annotated(self, name: str, color: str | None = None) -> Context:
        """A context for a region of the user's own, inside the slot that is current.

        Args:
            name: Of the region.
            color: That the user gave it; None for none.

        Returns:
            The same one for the same name in the same slot.
        """
        key = (name, self._clock.current_slot(), self._cpu)
        found = self._annotated.get(key)
        if found is None:
            nested = len(self._annotated) < MAX_ANNOTATED
            if not nested:
                key = (OTHER_REGIONS, *key[1:])
            elif color is not None:
                self.colors[name] = str(color)
            slot = self._clock.annotated(key[0], nested=nested)
            found = self._annotated[key] = self._clock.context(slot, cpu=self._cpu)
        return found

    def wrap_actions(self, region: Region, wrap: Callable[[str, Context], Context]) -> Callable[[], None]:
        """Replace the known contexts of a region by wrapped ones for a while, those of annotated regions as well.

        Args:
            region: Where.
            wrap: From an action's name and context to the context to use; may return the same. An annotated region's
                name begins with ``ANNOTATED``.

        Returns:
            A function that takes the wrapping back.
        """
        originals: list[tuple[_ContextTable, Mapping[str, Context]]] = []
        for (where, _), table in self._tables.items():
            if where == region:
                originals.append((table, dict(table)))
                for action, context in table.items():
                    table[action] = wrap(action, context)
        # Beside the user's own profiler, `start` and `stop` take their contexts from here.
        shortcuts = dict(self._shortcuts)
        for key, context in shortcuts.items():
            if key[1] == region:
                self._shortcuts[key] = wrap(key[0], context)

        annotated = dict(self._annotated)
        for (name, around, cpu), context in annotated.items():
            if self._clock.slots[around].region == region:
                self._annotated[name, around, cpu] = wrap(f"{ANNOTATED}{name}", context)

        def restore() -> None:
            for table, before in originals:
                table.update(before)
            self._shortcuts.update(shortcuts)
            self._annotated.update(annotated)

        return restore

    def wrap_action(self, region: Region, action: str, wrap: Callable[[Context], Context]) -> Callable[[], None]:
        """As :meth:`wrap_actions` for one action, also one that was not seen yet; cheap enough for single steps.

        Args:
            region: Loop of the action.
            action: As Lightning names it.
            wrap: From the context that times it to the one to use.

        Returns:
            What takes it back.
        """
        originals = [(table, table[action]) for table in (self._table(region, False), self._table(region, True))]
        for table, context in originals:
            table[action] = wrap(context)

        def restore() -> None:
            for table, context in originals:
                table[action] = context

        return restore

    # ----------------------------------------------------------------------------------------------------------------

    def _set_cpu_mode(self, on: bool) -> None:
        self._cpu = on
        self._activate()

    def _activate(self) -> None:
        self._active = self._table(self._region, self._cpu)
        self.profile = self._active.profile

    def _table(self, region: Region, cpu: bool) -> _ContextTable:
        table = self._tables.get((region, cpu))
        if table is None:
            theirs = self.inner.profile if self._forward else None
            table = self._tables[region, cpu] = _ContextTable(
                lambda action: self._make(action, region, cpu), self._untimed, theirs
            )
        return table

    def _make(self, action: str, region: Region, cpu: bool) -> Context:
        context = self._make_timed(action, region, cpu)
        return _Forwarded(self.inner, action, context) if self._forward else context

    def _untimed(self, action: str, error: Exception) -> Context:
        self._on_failure(error)
        return _Forwarded(self.inner, action, NULL_CONTEXT) if self._forward else NULL_CONTEXT

    def _timed_only(self, action: str) -> Context:
        """The context without the user's profiler in it, for ``start`` and ``stop``."""
        key = (f"timed {action}", self._region, self._cpu)
        found = self._shortcuts.get(key)
        if found is None:
            found = self._shortcuts[key] = self._make_timed(action, self._region, self._cpu)
        return found

    def _make_timed(self, action: str, region: Region, cpu: bool) -> Context:
        how = classify(action, manual=self._manual, overridden=self._overridden)
        clock = self._clock
        then = -1 if how.then is None else self._slot_after(how.then, region)
        if action.startswith("[Callback]") and self._does_nothing(how.callback, how.hook):
            return NULL_CONTEXT
        if how.phase is None and then < 0:
            return NULL_CONTEXT if action.startswith("[") else Untimed(action)  # the latter: the user's own
        if how.phase is None:
            return clock.mark(then, cpu=cpu)
        slot = clock.slot(action, how.phase, region, callback=how.callback, hook=how.hook)
        context = clock.context(slot, then=then, counts=how.counts, cpu=cpu)
        return _ExceptionHookEnd(context, self._on_end, self._on_failure) if how.hook == "on_exception" else context

    def _slot_after(self, phase: Phase, region: Region) -> int:
        return self._clock.loop_slot if phase == "loop" else self._clock.slot(f"after {phase}", phase, region)
