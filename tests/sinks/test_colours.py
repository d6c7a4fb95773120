"""The page's colours, read from its style: told apart by people with any colour vision, and readable.

Dichromacy is simulated by Machado, Oliveira and Fernandes (2009), severity 1; differences are CIEDE2000 (Sharma et al.
2005), contrasts are WCAG 2's.
"""

import itertools
import math
import re

import numpy as np
import pytest
import window_samples
from sample_report import full_report

from lightning_gpuprof.model.phases import PARTS, PHASES
from lightning_gpuprof.sinks.html import render_html
from lightning_gpuprof.sinks.html_page import packaged_text
from lightning_gpuprof.sinks.trace_html import render_trace_html

Colour = np.ndarray

MIN_NEIGHBOURS = 14.0
"""Between phases that follow each other in a stack; 2.3 is a difference that is just seen."""
MIN_ANY = 6.0
"""Between any two phases."""
MIN_LIGHTNESS = 8.0
"""Difference of L* between neighbours: so they differ on a black and white print."""
GRAPHICS, TEXT = 3.0, 4.5
TEXTS = ("ink", "faint", "accent", "critical", "warning", "info", "good")

VISIONS = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
USUAL_STACK = ("data_wait", "h2d", "forward", "backward", "optimizer", "zero_grad", "callbacks", "logging", "loop")
"""The phases that nearly every run has: no gradients are clipped, nothing happens between."""


def variables(block: str) -> dict[str, str]:
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", block))


def themes() -> dict[str, dict[str, str]]:
    style = packaged_text("report.css")
    light, rest = style.split("@media screen and (prefers-color-scheme: dark)", 1)
    dark, printed = rest.split("@media print")[:2]
    base = variables(light)
    return {"light": base, "dark": base | variables(dark), "print": base | variables(printed.split("}")[0])}


THEMES = themes()


def linear(colour: str) -> Colour:
    encoded = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    light = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) + 0.05 for c in (one, other))
    return light[1] / light[0]


def lab(rgb: Colour) -> Colour:
    to_xyz = np.array(
        [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    )
    t = (to_xyz @ np.clip(rgb, 0, 1)) / to_xyz.sum(axis=1)
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def ciede2000(one: Colour, other: Colour) -> float:
    (l1, a1, b1), (l2, a2, b2) = one, other
    mean = (math.hypot(a1, b1) + math.hypot(a2, b2)) / 2
    g = 0.5 * (1 - math.sqrt(mean**7 / (mean**7 + 25**7)))
    a1, a2 = a1 * (1 + g), a2 * (1 + g)
    c1, c2 = math.hypot(a1, b1), math.hypot(a2, b2)
    h1, h2 = (math.degrees(math.atan2(b, a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = (h2 - h1 + 180) % 360 - 180 if c1 * c2 else 0.0
    dh = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2))
    lm, cm, hm = (l1 + l2) / 2, (c1 + c2) / 2, (h1 + turn / 2) % 360 if c1 * c2 else h1 + h2
    t = (
        1
        - 0.17 * math.cos(math.radians(hm - 30))
        + 0.24 * math.cos(math.radians(2 * hm))
        + 0.32 * math.cos(math.radians(3 * hm + 6))
        - 0.20 * math.cos(math.radians(4 * hm - 63))
    )
    sl = 1 + 0.015 * (lm - 50) ** 2 / math.sqrt(20 + (lm - 50) ** 2)
    sc, sh = 1 + 0.045 * cm, 1 + 0.015 * cm * t
    rotation = (
        -2 * math.sqrt(cm**7 / (cm**7 + 25**7)) * math.sin(math.radians(60 * math.exp(-(((hm - 275) / 25) ** 2))))
    )
    dl, dc = (l2 - l1) / sl, (c2 - c1) / sc
    return math.sqrt(dl**2 + dc**2 + (dh / sh) ** 2 + rotation * dc * dh / sh)


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, 2.49, -0.001), (50.0, -2.49, 0.0009), 7.1792),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((2.0776, 0.0795, -1.135), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_the_difference_is_that_of_the_published_pairs(
    one: tuple[float, float, float], other: tuple[float, float, float], difference: float
) -> None:
    assert ciede2000(np.array(one), np.array(other)) == pytest.approx(difference, abs=1e-3)


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_phases_are_told_apart_by_any_colour_vision(theme: str, vision: str) -> None:
    seen = {phase: lab(VISIONS[vision] @ linear(THEMES[theme][phase])) for phase in PHASES}
    beside = {frozenset(pair) for stack in (PHASES, USUAL_STACK) for pair in itertools.pairwise(stack)}
    for one, other in itertools.combinations(PHASES, 2):
        least = MIN_NEIGHBOURS if frozenset((one, other)) in beside else MIN_ANY
        assert ciede2000(seen[one], seen[other]) >= least, (one, other)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_neighbours_in_the_usual_stack_differ_without_any_colour(theme: str) -> None:
    lightness = {phase: float(lab(linear(THEMES[theme][phase]))[0]) for phase in PHASES}
    for one, other in itertools.pairwise(USUAL_STACK):
        assert abs(lightness[one] - lightness[other]) >= MIN_LIGHTNESS, (one, other)


@pytest.mark.parametrize("theme", THEMES)
def test_graphics_stand_out_from_the_paper_and_text_can_be_read(theme: str) -> None:
    colours = THEMES[theme]
    for name in PHASES:
        assert contrast(colours[name], colours["paper"]) >= GRAPHICS, name
    for name, ground in itertools.product(TEXTS, ("paper", "raised")):
        assert contrast(colours[name], colours[ground]) >= TEXT, (name, ground)
    assert contrast(colours["paper"], colours["accent"]) >= TEXT
    for ground in ("less", "more", "raised"):
        assert contrast(colours["ink"], colours[ground]) >= TEXT, ground


def test_every_phase_and_part_has_a_colour_in_the_style() -> None:
    style = packaged_text("report.css")
    assert set(re.findall(r"--(\w+): (?:#[0-9a-f]{6}|var\(--\w+\));", style)) >= {*PHASES, *PARTS}
    assert set(variables(style)) >= set(PHASES)


def test_one_colour_has_one_meaning() -> None:
    light = packaged_text("report.css").replace("\n", " ")
    light = re.sub(r"@media[^{]*{(?:[^{}]*{[^{}]*})*[^{}]*}", "", light)
    names: dict[str, list[str]] = {}
    for name, colour in re.findall(r"--(\w+): (#[0-9a-f]{6});", light):
        names.setdefault(colour, []).append(name)
    assert names["#bc892b"] == ["data_wait"]
    assert [same for same in names.values() if len(same) > 1] == [["accent", "info"]]


def test_a_wait_in_the_timeline_has_the_colour_of_its_phase() -> None:
    style = packaged_text("report.css")
    for idle, phase in {"data": "data_wait", "checkpoint": "checkpoint", "callbacks": "callbacks"}.items():
        assert f"--idle_{idle}: var(--{phase});" in style


def test_every_colour_of_a_page_is_in_the_style() -> None:
    defined = set(re.findall(r"--(\w+):", packaged_text("report.css")))
    pages = render_html(full_report()), render_trace_html(window_samples.analysis(), name="t.json")
    named = {name for page in pages for name in re.findall(r'style="[^"]*var\(--(\w*)', page)}
    assert {"forward", "train", "idle_data"} <= named <= defined
