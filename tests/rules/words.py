"""Words that nobody outside of this project uses so, and what to write instead. Single ones: docs/tools/words.txt."""

import re

PHRASES = {
    r"held against": "compared with",
    r"that we may use": "usable",
    r"for want of": "waiting for",
    r"such a one": "one",
    r"(?:trace|window|report|run|folder)s? holds? no": "has no",
    r"work of a device": "device activity",
    r"clocks disagree": "clock skew; clocks differ",
    r"stands? in the way": "why … cannot",
    r"did not go on|does not go on": "hung, hangs",
    r"cannot be bounded": "cannot be predicted",
    r"(?<!global )interpreter(?:'s)? lock": "GIL",
}
"""On no page, in nothing that rules say, and nowhere in the source; what to write instead."""


IN_FINDINGS = {
    **PHRASES,
    r"cure[ds]?": "fix",
    r"regimes?": "speed level",
    r"periods?": "step time",
    r"ours": "heuristic",
    r"rests? on": "uses, is based on",
    r"tells|told": "says, reports, shows",
    r"meanwhile": "while …",
    r"works": "runs, is busy; kernels",
    r"has nothing to do": "idles",
    r"we": "the run, you",
    r"nothing covers": "does not overlap with computation",
    r"has no work": "idles",
    r"1 times": "once",
    r"[\d.]+e[+-]\d+": "a number without exponent",
}
"""Likewise, where words have a meaning elsewhere."""

IN_SOURCE = {
    r"told": "said, shown, reported; of a variable what it holds",
    r"tells? of": "shows",
    r"(?:windows?|driver|kernel|nothing|NVML|report) (?:does not |do not )?tells?": "shows, reports",
}
"""Words that sounded translated in names and comments of the rooms that compute and judge."""


def unwanted(text: str, phrases: dict[str, str]) -> list[str]:
    return [
        f"{match[0]!r}, better {better!r}: …{text[max(0, match.start() - 40) : match.end() + 20]}…"
        for phrase, better in phrases.items()
        for match in re.finditer(rf"\b(?:{phrase})\b", text, re.IGNORECASE)
    ]
