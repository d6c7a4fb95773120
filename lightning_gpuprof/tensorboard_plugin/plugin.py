"""The routes of the tab; see ``docs/loggers.md`` for what it shows."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensorboard.plugins import base_plugin
from werkzeug.wrappers import Request, Response

from lightning_gpuprof.errors import GpuProfError
from lightning_gpuprof.tensorboard_plugin import answers, assets
from lightning_gpuprof.tensorboard_plugin.reports import Made, Pending, Reports
from lightning_gpuprof.tensorboard_plugin.run_files import RunFiles, look
from lightning_gpuprof.tensorboard_plugin.runs import Found, Run, RunFolders
from lightning_gpuprof.tensorboard_plugin.summaries import Summaries

if TYPE_CHECKING:
    from lightning_gpuprof.tensorboard_plugin.comparisons import Comparisons

MAX_NAME = 4_096
"""Characters of a run's name in a request."""
MAX_HTML = 24 << 20
"""Characters of a view."""
LOOK_S = 10.0
"""How long a request waits for the search of the log directory."""
GLANCE_S = 0.3
"""How long TensorBoard's question whether there is anything to show may wait for it."""
REPORT_S = 1.5
"""How long a request waits for a report before the answer is that it is being made."""

_logger = logging.getLogger("lightning_gpuprof")


class _RefusedError(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class GpuProfPlugin(base_plugin.TBPlugin):  # type: ignore[misc]
    """The tab "GPU Profiler".

    Args:
        context: TensorBoard's ``TBContext``; its log directory is all that is used.
    """

    plugin_name = "gpuprof"

    def __init__(self, context: Any) -> None:
        self._given = Path(str(getattr(context, "logdir", None) or ""))
        self._root, self._no_root = log_directory(context)
        self._folders = RunFolders(self._root) if self._root is not None else None
        self._summaries = Summaries()
        self._reports = Reports(self._summaries.add)
        self._compared: Comparisons | None = None
        self._warm = False

    def frontend_metadata(self) -> Any:
        """How TensorBoard shows the tab."""
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name="GPU Profiler", disable_reload=True)

    def is_active(self) -> bool:
        """Whether there is a run to show; never waits for more than a moment."""
        active = self._folders is not None and bool(self._folders.found(GLANCE_S).runs)
        if active and not self._warm:
            self._warm = True
            threading.Thread(target=_warm_up, name="gpuprof-tab warm-up", daemon=True).start()
        return active

    def get_plugin_apps(self) -> dict[str, Any]:
        """Route → WSGI application. No route takes a path: files have a route each, runs are looked up by name."""
        routes = {f"/{name}": _route(_serving(load)) for name, load in assets.catalogue().items()}
        return {**routes, "/runs": _route(self._runs), "/view": _route(self._view), "/compare": _route(self._compare)}

    def _runs(self, request: Request) -> Response:
        """All runs, the latest first, and the views that each has."""
        from lightning_gpuprof.tensorboard_plugin import run_list
        from lightning_gpuprof.tensorboard_plugin.views import TITLES

        found = self._found()
        rows = []
        for run in found.runs.values():
            try:
                rows.append(run_list.row(run.name, self._summaries.of(self._look(run))))
            except GpuProfError as error:
                rows.append(run_list.row(run.name, run_list.unreadable_summary(str(error))))
            except Exception as error:  # the fence between one run's data and the list of all
                _logger.warning("a run cannot be listed", exc_info=True)
                rows.append(run_list.row(run.name, run_list.unreadable_summary(type(error).__name__)))
        listed = run_list.listing(rows, note=self._no_root or found.note)
        return answers.data(request, {**listed, "views": TITLES}, version=run_list.version(listed))

    def _view(self, request: Request) -> Response:
        """One view of a run."""
        from lightning_gpuprof.sinks.first_screen import first_screen
        from lightning_gpuprof.sinks.views import first
        from lightning_gpuprof.tensorboard_plugin.views import OVERVIEW, TAB_VIEWS

        view = TAB_VIEWS.get(_argument(request, "view"))
        run = self._run(_argument(request, "run"))
        if view is None:
            raise _RefusedError(404, "there is no such view")
        files = self._look(run)
        current = self._reports.current(files)
        state = self._summaries.of(files).state
        if current is not None and request.if_none_match.contains(_version(current, files, state, view.anchor)):
            return answers.not_modified(_version(current, files, state, view.anchor))
        made = self._reports.of(files, REPORT_S)
        if isinstance(made, Pending):
            return answers.data(request, {"pending": made.why}, status=202)

        def render() -> str:
            if view is not OVERVIEW:
                return view.render(made.report)
            return first.render(first_screen(made.report, self._given / run.name))  # as a user would name it

        return self._answer(request, _rendered(render), view.anchor, [(made, files)])

    def _compare(self, request: Request) -> Response:
        """One view of two runs side by side."""
        from lightning_gpuprof.tensorboard_plugin import comparisons
        from lightning_gpuprof.tensorboard_plugin.views import TAB_VIEWS

        view = TAB_VIEWS.get(_argument(request, "view"))
        runs = [self._run(_argument(request, name)) for name in ("run", "other")]
        if view is None:
            raise _RefusedError(404, "there is no such view")
        made = []
        for run in runs:
            files = self._look(run)
            one = self._reports.of(files, REPORT_S)
            if isinstance(one, Pending):
                return answers.data(request, {"pending": one.why}, status=202)
            made.append((one, files))
        first, second = (one.report for one, _ in made)
        names = runs[0].name, runs[1].name

        def render() -> str:
            held = self._comparisons().of(names, made[0], made[1])
            return comparisons.render(view.anchor, view.render, first, second, names, held)

        return self._answer(request, _rendered(render), view.anchor, made)

    def _comparisons(self) -> Comparisons:
        from lightning_gpuprof.tensorboard_plugin.comparisons import Comparisons

        if self._compared is None:
            self._compared = Comparisons()
        return self._compared

    def _answer(self, request: Request, html: str, anchor: str, made: list[tuple[Made, RunFiles]]) -> Response:
        """A rendered view with the states of the runs that it is of, and the groups that are empty in all of them."""
        from lightning_gpuprof.tensorboard_plugin.views import empty_groups

        states = [self._summaries.of(files).state for _, files in made]
        # A run that has ended may be shown by an older report for a while.
        goes_on = any(state == "running" for state in states) or any(m.version != f.version for m, f in made)
        empty = set.intersection(*(set(empty_groups(one.report)) for one, _ in made))
        content = {"html": html, "states": states, "goes_on": goes_on, "empty": sorted(empty)}
        version = "+".join(
            _version(one.version, files, state, anchor) for (one, files), state in zip(made, states, strict=True)
        )
        return answers.data(request, content, version=version)

    def _found(self) -> Found:
        return Found() if self._folders is None else self._folders.found(LOOK_S)

    def _run(self, name: str) -> Run:
        """A run by its name: only what the search found can be named."""
        run = self._found().runs.get(name)
        if run is None and self._folders is not None:
            run = self._folders.found(LOOK_S, renewed=True).runs.get(name)
        if run is None:
            raise _RefusedError(404, "there is no such run under the log directory")
        return run

    def _look(self, run: Run) -> RunFiles:
        assert self._root is not None, "a run was found, so there is a log directory"
        return look(run.folder, self._root)


def log_directory(context: Any) -> tuple[Path | None, str]:
    """The folder in which runs are looked for, or None and why there is none."""
    given = str(getattr(context, "logdir", None) or "")
    if "://" in given:
        return (
            None,
            "This tab reads runs from a local folder, not from a remote log directory. Copy the runs to here.",
        )
    if not given:
        return None, "This tab needs --logdir DIR; it cannot read --logdir_spec."
    return Path(given).expanduser().resolve(), ""


def _argument(request: Request, name: str) -> str:
    """An argument that has to be given once.

    Raises:
        _RefusedError: It is missing, given twice, empty or too long.
    """
    values = request.args.getlist(name)
    if len(values) != 1 or not values[0]:
        raise _RefusedError(400, f"{name} must be given once")
    if len(values[0]) > MAX_NAME:
        raise _RefusedError(400, f"{name} must have at most {MAX_NAME:,} characters, got {len(values[0]):,}")
    return values[0]


def _version(report: str, files: RunFiles, state: str, anchor: str) -> str:
    """Of an answer: it changes with the report that is shown, with the state, and when an older one is caught up."""
    return f"{report}-{'current' if report == files.version else 'older'}-{state.partition(':')[0]}-{anchor}"


def _rendered(render: Callable[[], str]) -> str:
    """A view's HTML.

    Raises:
        _RefusedError: It cannot be drawn, or is too long for a page.
    """
    try:
        html = render()
    except Exception as error:  # the fence between a run's data and TensorBoard
        _logger.warning("a view cannot be drawn", exc_info=True)
        raise _RefusedError(422, f"this view cannot be drawn of this run ({type(error).__name__})") from error
    if len(html) > MAX_HTML:
        raise _RefusedError(422, f"this view of this run is too large for a page ({len(html) / 1e6:,.0f} MB)")
    return html


def _route(respond: Callable[[Request], Response]) -> Any:
    """A WSGI application that answers GET and turns what is wrong into 4xx."""

    @Request.application
    def application(request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return answers.refusal(request, 405, "only GET is answered")
        try:
            return respond(request)
        except _RefusedError as refused:
            return answers.refusal(request, refused.status, refused.why)
        except GpuProfError as error:
            return answers.refusal(request, 422, str(error))

    return application


def _serving(load: Callable[[], assets.Asset]) -> Callable[[Request], Response]:
    return lambda request: answers.asset(request, load())


def _warm_up() -> None:
    """Import what the first view needs, before anybody asks for it."""
    try:
        import lightning_gpuprof.pipeline
        import lightning_gpuprof.tensorboard_plugin.views  # noqa: F401

        assets.plotly()
    except Exception:  # the first view will say what is wrong
        _logger.debug("warm-up failed", exc_info=True)
