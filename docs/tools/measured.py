"""Numbers in the README and the documentation, from the JSON that the benchmarks wrote to ``benchmarks/results``.

They stand between ``<!-- measured: NAME -->`` and ``<!-- end -->``; the name is that of a function below.
"""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from docstrings import table
from lightning_gpuprof.model.numbers import often

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = (
    ROOT / "README.md",
    *(ROOT / "docs" / f"{name}.md" for name in ("benchmarks", "compare", "machine", "input-pipeline")),
)

FURTHEST = 10
"""Changes that are listed one by one."""

_BLOCK = re.compile(r"<!-- measured: (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def renewed(page: str) -> str:
    """The page with every measured block as the committed results have it.

    Args:
        page: Markdown as it is.

    Raises:
        LookupError: A block has a name that no function here has.
    """

    def block(found: re.Match[str]) -> str:
        if found[1] not in BLOCKS:
            raise LookupError(f"no measured block {found[1]!r}: there are {', '.join(BLOCKS)}")
        return f"<!-- measured: {found[1]} -->\n\n{BLOCKS[found[1]]()}\n\n<!-- end -->"

    return _BLOCK.sub(block, page)


def _results(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def _us(measured: dict[str, float]) -> str:
    """Median and 95 % confidence interval of microseconds."""
    digits = ".0f" if abs(measured["median"]) >= 100 else ".1f"
    median, low, high = (format(measured[name], "+" + digits) for name in ("median", "low", "high"))
    return f"{median} µs ({low} to {high})"


def step_cost() -> str:
    """What a step takes longer, within one fit."""
    rows = {(one["other_callbacks"], one["mode"]): _us(one["added_us"]) for one in _results("one_fit")["results"]}
    return table(
        ("added to the median step (95 %)", "no other callbacks", "beside three others"),
        [
            (name, rows[0, mode], rows[3, mode])
            for name, mode in (("`GpuProfiler()`", "gpuprof"), ("an empty callback", "empty"))
        ],
    )


def whole_fits() -> str:
    """What a step takes longer in whole fits that a trace window opens in."""
    beside = "beside the Trainer's own callbacks and a `CSVLogger`"
    names = {
        "gpuprof": "`GpuProfiler()`",
        "empty": "an empty callback",
        "own-gpuprof": f"`GpuProfiler()`, {beside}",
        "own-empty": f"an empty callback, {beside}",
    }
    return _added(names, "overhead_with_window")


def profilers() -> str:
    """What a step takes longer with each profiler, in whole fits."""
    names = {
        "gpuprof": "`GpuProfiler()`",
        "gpuprof-all": "`GpuProfiler()`, (scripted) GPU and host sampled every 0.1 s",
        "empty": "an empty callback",
        "simple": "Lightning's `SimpleProfiler`",
        "device-stats": "`DeviceStatsMonitor`, logging every 50 steps",
        "device-stats-1": "`DeviceStatsMonitor`, logging every step",
        "traceml": "TraceML 0.5",
        "advanced": "Lightning's `AdvancedProfiler`",
        "pytorch": "Lightning's `PyTorchProfiler`, schedule 90/5/5",
    }
    return _added(names, "overhead")


def _added(names: dict[str, str], result: str) -> str:
    """Rows of the variants, by what they are called."""
    measured = {one["variant"]: one for one in _results(result)["results"]}
    return table(
        ("added to a step", "median (95 %)", "mean", "5 % quantile"),
        [
            (
                name,
                _us(one["added_us"]),
                *(f"{one[key]['median']:+.1f} µs" for key in ("added_mean_us", "added_quiet_us")),
            )
            for name, one in ((name, measured[variant]) for variant, name in names.items())
        ],
    )


def windows() -> str:
    """What a trace window keeps training waiting."""
    names = {
        "gpuprof": "`GpuProfiler()`",
        "gpuprof-waiting": "`GpuProfiler()` with `background_stop=False`",
        "pytorch": "Lightning's `PyTorchProfiler`, plain JSON, no shapes",
        "pytorch-gzip": "the same, compressed",
        "pytorch-gzip-shapes": "the same, with shapes",
    }
    measured = {
        one["variant"]: one for name in ("window_stall_waiting", "window_stall") for one in _results(name)["results"]
    }
    return table(
        ("profiler", "longest stall", "training lost in all"),
        [
            (
                name,
                f"{measured[key]['stall_ms']['median'] / 1e3:.2f} s",
                f"{measured[key]['lost_ms']['median'] / 1e3:.2f} s",
            )
            for key, name in names.items()
        ],
    )


def _share(counted: dict[str, Any]) -> str:
    right, whole = counted["right"], counted["of"]
    if whole == 0:
        return "-"
    return f"{right} of {whole}" + (f" ({right / whole:.1%})".replace("%", " %") if right < whole else "")


def truth() -> str:
    """How often the diagnosis is right: real fits on the CPU, and computed and recorded trainings on a GPU."""
    real, computed = (_results(name)["summary"] for name in ("truth", "truth_computed"))
    names = {
        "first": "the planted fault is the first finding",
        "in_three": "it is among the first three",
        "verdicts": "the verdict is right",
        "precise": "no warning about anything else",
        "healthy": "no warning on a healthy fit",
        "decoys": "no warning on a fit that only looks faulty",
    }
    return table(
        ("", "real fits on the CPU", "simulated and recorded GPU runs"),
        [(name, _share(real[key]), _share(computed[key])) for key, name in names.items()],
    )


def planted() -> str:
    """How many fits the truth is planted in."""
    results = _results("truth")
    fits = len(results["runs"]) // results["repetitions"]
    return (
        f"`truth.py` plants faults of known place and size in {fits} fits of four models on the CPU, each "
        f"{often(results['repetitions'])}."
    )


def load() -> str:
    """Whether the first finding is the same in all runs while other programs compute."""
    found = _results("truth_load")
    same = sum(len(one["firsts"]) == 1 for one in found["results"])
    reliable = sum(run["reliability"] == "ok" for run in found["runs"])
    return (
        f"Beside {found['hogs']} programs that compute on {found['machine']['cpus']} CPUs, the first screen was about "
        f"the same finding, or none, in all {found['repetitions']} runs of {same} fits out of {len(found['results'])}. "
        f"{reliable or 'None'} of the {len(found['runs'])} runs was called reliable."
    )


def alarms() -> str:
    """What simulated pairs of runs are called that are equal, or differ."""
    results = _results("compare_alarms")
    rows = [
        (
            ("" if one["differ"] else "equal, ") + one["kind"],
            *(f"{100 * one[key] / one['pairs']:.0f} %" for key in ("changed", "within_noise", "not_comparable")),
        )
        for one in results["results"]
    ]
    settings = results["settings"]
    return (
        f"{settings['pairs']} simulated pairs of each kind, {settings['steps']} steps a run. Memory: the share of its "
        "deviation that a step hands to the next.\n\n"
        + table(("pairs", "changed", "within noise", "not comparable"), rows)
        + "\n\nWhere noise outlasts the run, "
        f"{100 * results['outlasting_changed_ratio']:.0f} % of equal runs are called changed."
    )


def limits() -> str:
    """Limits that have a number."""
    stalls = [one for one in _results("window_stall_waiting")["results"] if one["variant"] == "gpuprof-waiting"]
    alarms = 100 * _results("compare_alarms")["outlasting_changed_ratio"]
    return (
        "- With a GPU, or a torch other than 2.13.0 and 2.14.1, training stops while a trace window is written: "
        f"{stalls[0]['stall_ms']['median'] / 1e3:.1f} s for {round(stalls[0]['trace_events'], -3):,} events.\n"
        f"- `gpuprof compare` reports a change in {alarms:.0f} % of pairs of equal runs whose noise drifts slowly, and "
        "in more of them on a busy machine."
    )


def dose() -> str:
    """The gain that is promised against the time that was planted."""
    off: dict[str, list[float]] = {}
    silent = []
    for run in _results("truth_dose")["runs"]:
        if run["dose_ms"] == 0:
            silent.append(run["recovered_ms"] is None)
        elif run["off_ratio"] is not None:
            off.setdefault(run["place"], []).append(run["off_ratio"])
    rows = [
        (place, f"{min(values):+.1%}".replace("%", " %"), f"{max(values):+.1%}".replace("%", " %"))
        for place, values in off.items()
    ]
    return table(("1 to 20 ms planted in", "lowest promise", "highest promise"), rows) + (
        "\n\nDifferences from the planted time. "
        f"With nothing planted, {sum(silent)} of {len(silent)} places are silent."
    )


def advice() -> str:
    """What the advice gained against its bound."""
    achieved = sorted(
        run["achieved_ms"] / run["bound_ms"] for run in _results("truth_advice")["runs"] if run["bound_ms"]
    )
    low, middle, high = (f"{100 * achieved[at]:.0f}" for at in (0, len(achieved) // 2, -1))
    return (
        f"Applied as it is written, the advice of {len(achieved)} cases gained {low} to {high} % of its bound "
        f"(median {middle} %)."
    )


def removed() -> str:
    """What findings promise against what their faults cost."""
    ratios = _promised_ratios("truth_removed")
    above = [f"{case} ({ratio:.2f})" for ratio, case in ratios if ratio > 1.1]
    low, middle, high = (f"{ratios[at][0]:.2f}" for at in (0, len(ratios) // 2, -1))
    return (
        f"`--removed` runs a fit again without its fault. Of what the fault cost, the findings of {len(ratios)} fits "
        f"promise {low} to {high} (median {middle}; of fits that ran more than once, their median counts). "
        + (f"Above 1.1: {'; '.join(above)}." if above else "None promises more than 1.1 of it.")
        + f" The {sum(ratio < 0.8 for ratio, _ in ratios)} below 0.8 say what their advice leaves."
    )


def _promised_ratios(name: str) -> list[tuple[float, str]]:
    """What is promised over what the fault costs, with the case, the least first."""
    cases = _results(name)["cases"]
    return sorted((one["ratio"], one["case"]) for one in cases if one["ratio"] is not None)


def tried() -> str:
    """What was expected of changes and what a trial said, against what they brought; empty until it was measured."""
    if not (RESULTS / "advice.json").is_file():
        return ""
    results = _results("advice")
    found = results["summary"]

    def percent(name: str) -> str:
        return "-" if found[name] is None else f"{100 * found[name]:.1f} %"

    def speedup(whole_ms: float, left_ms: float) -> str:
        return f"{whole_ms / left_ms:.2f}x"

    rows = []
    for one in sorted(results["changes"], key=_off, reverse=True)[:FURTHEST]:
        likely, trial = one["expected"], one["tried"]
        rows.append(
            (
                one["name"],
                *(f"{one[name]:.1f} ms" for name in ("before_ms", "after_ms")),
                speedup(one["before_ms"], one["after_ms"]),
                speedup(likely["whole_ms"], likely["step_ms"]) if likely else "-",
                speedup(trial["base_ms"], trial["tried_ms"]) if trial and trial["tried_ms"] else "-",
                trial["outcome"] if trial else "-",
            )
        )
    head = table(
        ("of the step time before the change", "changes", "median", "90 % quantile"),
        [
            (what, str(found[name]), percent(f"{name}_off_median"), percent(f"{name}_off_p90"))
            for what, name in (("expected, off by", "expected"), ("tried, off by", "tried"))
        ],
    )
    left = results.get("left")
    return (
        "`advice.py` compares what a report expects of a change, and what `gpuprof try` measures of it, with what "
        "it brought"
        + (f"; {left} more cases are not measured yet" if left else "")
        + f".\n\n{head}\n\nWhat a change brought is known to {percent('unsure_median')} (standard error, "
        f"median).\n\nThe 90 % interval of what is expected covers {percent('covered_by_90')} of these "
        f"changes. Of {found['without_effect']} changes without effect, {percent('called_no_gain')} are called "
        f'"no gain". The {FURTHEST} changes of {len(results["changes"])} least as expected or tried (all: '
        "`benchmarks/results/advice.json`):\n\n"
        + table(("change", "before", "after", "achieved", "expected", "tried", "called"), rows)
        + _searches(results["searches"])
        + (f"\n\n{note}" if (note := results.get("note")) else "")
    )


def _off(change: dict[str, Any]) -> float:
    """How far the step was from what was expected, or tried, whichever is more, of the step time before."""
    likely, trial = change["expected"], change["tried"]
    left = [likely["step_ms"] / likely["whole_ms"]] if likely else []
    left += [trial["tried_ms"] / trial["base_ms"]] if trial and trial["tried_ms"] else []
    return max((abs(one - change["after_ms"] / change["before_ms"]) for one in left), default=0.0)


def _searches(found: Sequence[dict[str, Any]]) -> str:
    if not found:
        return ""
    rows = [
        (
            one["name"],
            f"`{one['chosen']}`",
            f"{one['chosen_ms']:.2f} ms",
            f"`{one['best']}`",
            f"{one['best_ms']:.2f} ms",
        )
        for one in found
    ]
    return "\n\n" + table(("`gpuprof try --input`", "chose", "step", "best of whole runs", "step"), rows)


def traces() -> str:
    """Traces from the start of a process to its end, against HolisticTraceAnalysis."""
    results = _results("trace_small")
    rows = []
    for file in results["results"]:
        hta = _peer(file)
        rows.append(
            (
                f"`{file['file']}`",
                f"{file['json_mb']:.0f} MB",
                *(f"{one['process_s']['median']:.2f} s" for one in file["commands"]),
                f"{hta['process_s']:.2f} s",
                *(f"{one['hta_times']['median']:.1f}" for one in file["commands"]),
                f"{_ours(file)['peak_mb']['median']:.0f} MB, {hta['peak_mb']['median']:.0f} MB",
            )
        )
    commands = [one["command"].replace("gpuprof ", "") for one in results["results"][0]["commands"]]
    heads = (
        *("trace", "JSON"),
        *(f"`{command}`" for command in commands),
        "HTA",
        *(f"HTA's time, x `{command}`" for command in commands),
        "memory: all of ours, HTA",
    )
    return f"{table(heads, rows)}\n\n{_traces_measured(results)}"


def trace_speed() -> str:
    """The same in a sentence."""
    results = _results("trace_small")
    file = results["results"][0]
    facts, summary = (f"{one['process_s']['median']:.1f} s" for one in file["commands"])
    return (
        f"`gpuprof trace` analyses a {file['json_mb']:.0f} MB trace and prints its findings in {summary}. "
        f"`gpuprof trace --json`, which prints facts only, takes {facts}. "
        f"HolisticTraceAnalysis takes {_peer(file)['process_s']:.1f} s. {_traces_measured(results)}"
    )


def _traces_measured(results: dict[str, Any]) -> str:
    version, cpus = results["settings"]["peers"]["hta"].partition("==")[2], results["machine"]["cpus"]
    return f"Times are of whole processes, imports included: medians on {cpus} CPUs, HolisticTraceAnalysis {version}."


def _ours(file: dict[str, Any]) -> dict[str, Any]:
    return next(one for one in file["results"] if one["reader"] == "ours")


def _peer(file: dict[str, Any]) -> dict[str, Any]:
    return next(one for one in file["results"] if one["reader"] == "hta")


def reading() -> str:
    """Reading and analysing traces without the imports, against HolisticTraceAnalysis, of a large one."""
    rows = []
    for file in _results("trace_grown")["results"]:
        rows.append(
            (
                f"`{file['file']}`",
                f"{file['json_mb']:.0f} MB",
                *(f"{one['process_s']:.1f} s, {one['peak_mb']['median']:.0f} MB" for one in (_ours(file), _peer(file))),
                f"{_peer(file)['process_s'] / _ours(file)['process_s']:.1f}",
            )
        )
    return table(("trace", "JSON", "all of ours", "HTA", "HTA's time, x ours"), rows)


def rest() -> str:
    """One line for each of the other costs."""
    samplers = _results("samplers")["result"]
    imports = {one["statement"]: one["added_ms"]["median"] for one in _results("import_time")["results"]}
    short = {
        (one["logger"], one["variant"]): one["added_s"]["median"] * 1e3 for one in _results("short_fit")["results"]
    }
    long = _results("long_run")
    tab = {one["what"]: one["frame_ms"] / 1e3 for one in _results("tab")["opened"]}
    lines = (
        f"Sampling at the default intervals adds {_us(samplers['added_us'])} to a step and takes "
        f"{100 * samplers['added_background_ratio']['median']:.1f} % of a core.",
        f"A fit of four steps takes {short['no logger', 'GpuProfiler()']:.0f} ms longer without a logger, "
        f"{short['TensorBoardLogger', 'GpuProfiler()']:.0f} ms with TensorBoard's.",
        "`from lightning_gpuprof import GpuProfiler`, after `import lightning`, takes "
        f"{imports['from lightning_gpuprof import GpuProfiler']:.0f} ms.",
        f"{long['settings']['steps'] / 1e6:.0f} million steps need {long['written']['growth_mb']:.1f} MB more memory "
        f"than the first 100,000. Their journal has {long['written']['journal_mb']:.0f} MB, and their report takes "
        f"{long['report']['time_s']:.0f} s and {long['report']['peak_mb'] / 1e3:.1f} GB.",
        f"TensorBoard's tab shows a run of 100,000 steps after {tab['overview']:.2f} s, a list of 200 runs after "
        f"{tab['list of 200 runs']:.2f} s.",
    )
    return "\n".join(f"- {line}" for line in lines)


def sampling() -> str:
    """What sampling takes."""
    cores = _results("samplers")["result"]["added_background_ratio"]
    median, low, high = (f"{100 * cores[name]:.2f}" for name in ("median", "low", "high"))
    return f"Sampling at the default intervals takes {median} % of a core (95 %: {low} to {high})."


def probe() -> str:
    """What measuring the items of a DataLoader takes, where it can be measured best: in the main process."""

    def row(one: dict[str, Any]) -> tuple[str, str, str]:
        median, low, high = (f"{100 * one['share'][name]:+.1f} %" for name in ("median", "low", "high"))
        return one["case"]["name"].replace(" us", " µs"), f"{one['item_us']:,.0f} µs", f"{median} ({low} to {high})"

    cases = [one for one in _results("input_probe")["results"] if one["case"]["workers"] == 0]
    return table(("items made in the main process", "each takes", "longer, if measured (95 %)"), map(row, cases))


def versions() -> str:
    """Pairs of Lightning and torch, and which of the checks fail with each."""
    rows = []
    for one in _results("versions")["results"].values():
        packages = [name for name in ("lightning", "pytorch-lightning") if name in one["versions"]]
        failed = [name for name, why in one["checks"].items() if why]
        named = f"{packages[0]} {one['versions'][packages[0]]}"
        rows.append((named, one["versions"]["torch"], ", ".join(failed) or "none"))
    return table(("trainer", "torch", "checks that fail"), rows)


BLOCKS: dict[str, Callable[[], str]] = {
    one.__name__: one
    for one in (
        *(
            step_cost,
            whole_fits,
            profilers,
            windows,
            planted,
            truth,
            load,
            alarms,
            limits,
            dose,
            advice,
            removed,
            tried,
            traces,
            trace_speed,
            reading,
            rest,
        ),
        *(sampling, probe, versions),
    )
}
