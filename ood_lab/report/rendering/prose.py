"""Sentences: a template of each page has them, a macro a subject and a sentence a line.

Filters are the only way from a value to its text: ``percent`` (one decimal), ``interval`` (a row's
value with its 95% interval), ``points`` (a row's difference), ``hundredths`` (18 of 100), ``p``,
``share`` (percent of an estimate with its interval), ``span`` (from the least to the largest),
``strength`` (of an AUROC on either side of 50%), ``of_statistic`` (a statistic of images),
``differs`` (what images with more or less of it are called), ``listing`` (names, of many the
first), ``listed`` (all of them) and ``counted`` (with a noun).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import Any

import pandas as pd

from ood_lab.common.english import counted, listed
from ood_lab.report.rendering.metric_definitions import DAGGER, percent
from ood_lab.schema.image_statistics import value_text, words_of
from ood_lab.schema.results import Row, why_missing


def sentences(template: str, subject: str, *values: Any, **named: Any) -> list[str]:
    """What a macro of a template says.

    Args:
        template: below ``ood_lab/report``, as ``verdict/words.j2``.
        subject: the macro.
        values: its arguments.
        named: its arguments by name.
    """
    text = getattr(load_template(template).module, subject)(*values, **named)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def points(row: Row, sign: int = 1) -> str:
    """``2.1 points [0.3, 3.9]`` of a difference with its interval, shares."""
    ends = sorted(sign * 100 * row[key] for key in ("ci_low", "ci_high"))
    return f"{sign * 100 * row['value']:.1f} points [{ends[0]:.1f}, {ends[1]:.1f}]"


def differs(cause: Row | pd.Series) -> str:
    """What the images of a dataset are called: "darker", of a row of kind ``cause``."""
    return words_of(str(cause["statistic"]))[int(cause["value"] > 0.5)]


@cache
def load_template(name: str) -> Any:
    """A template below ``ood_lab/report``, to be rendered with all of its variables."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # slow to load, for commands

    environment = Environment(
        loader=PackageLoader("ood_lab.report", "."),
        # Sentences are for terminals, too; a page escapes them.
        autoescape=lambda template: str(template).endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.do"],
    )
    environment.filters |= {
        "percent": percent,
        "interval": value_of,
        "points": points,
        "hundredths": lambda share: f"{100 * share:.0f} of 100",
        "share": lambda of: f"{100 * of.value:.0f}% [{100 * of.low:.0f}, {100 * of.high:.0f}]",
        "span": spread_of,
        "strength": lambda auroc: f"{max(auroc, 1 - auroc):.0%}",
        "of_statistic": value_text,
        "differs": differs,
        "p": lambda p: f"{p:.2g}" if p >= 1e-4 else f"{p:.0e}",
        "listing": listing,
        "listed": listed,
        "counted": counted,
    }
    environment.tests["missing"] = pd.isna
    environment.globals["DAGGER"] = DAGGER
    return environment.get_template(name)


#: Sets that a sentence names.
_NAMED = 6
#: Values that are told one by one; of more, the best and the worst.
EACH = 4
INTERVALS = " (95% intervals in brackets)"
#: Level of the tests.
ALPHA = 0.05


def listing(names: Iterable[str]) -> str:
    """The names; of many the first, and how many others there are."""
    names = list(names)
    more = len(names) - _NAMED
    return listed(names if more <= 1 else [*names[:_NAMED], f"{more} others"])


def at(names: Iterable[str], before: str = "on") -> str:
    """`` on a and b``; nothing where there is no name."""
    present = list(filter(None, names))
    return f" {before} {listing(present)}" if present else ""


def spread_of(values: Iterable[float], digits: int = 0, factor: float = 100) -> str:
    """The least and the largest value, once where both look alike."""
    numbers = list(values)
    return " to ".join(
        dict.fromkeys(f"{factor * v:.{digits}f}" for v in (min(numbers), max(numbers)))
    )


def value_of(
    row: Row,
    value: str = "value",
    low: str = "ci_low",
    high: str = "ci_high",
    unit: str = "%",
) -> str:
    """``91.4% [89.1, 93.8]`` of a row with a share and the ends of its interval."""
    number, *ends = (percent(math.nan if row[k] is None else row[k]) for k in (value, low, high))
    if pd.isna(row[low]):
        return f"{number}{unit} (too few for an interval)"
    return f"{number}{unit} [{', '.join(ends)}]"


def values_of(rows: pd.DataFrame, lower: bool, unit: str = "%", before: str = "on") -> str:
    """The values, the best first; of many the first and the last.

    Args:
        rows: of a results table, on what is in ``on``; on "" are all together.
        lower: less is better.
        unit: behind a value.
        before: what a value is on.
    """
    defined = rows[rows["value"].notna()].sort_values("value", ascending=lower, kind="stable")
    missing = rows[rows["value"].isna()]
    why = dict.fromkeys(why_missing(r) or "too few answers" for r in missing.to_dict("records"))
    if not len(defined):
        return f"not known: {listed(why)}"
    texts = [(value_of(row, unit=unit), row["on"]) for row in defined.to_dict("records")]
    by_place = [f"{value} {before} {on}" for value, on in texts if on]
    plain = [value for value, on in texts if not on]
    if not by_place:
        return plain[0]
    if len(by_place) > EACH:
        by_place = [f"from {by_place[0]} to {by_place[-1]}"]
    elif defined["value"].round(3).nunique() > 1:
        by_place[-1] = f"at worst {by_place[-1]}"
    lost = f"; not known{at(missing['on'], before)} ({listed(why)})" if why else ""
    return f"{''.join(f'{value} in all: ' for value in plain)}{listed(by_place)}{lost}"


def noted(values: str) -> str:
    """The values, with what their brackets hold, if there are any."""
    return f"{values}{INTERVALS}" if "[" in values else values


def tested(rows: pd.DataFrame, draws: int) -> pd.Series:
    """``p_holm`` of contrasts, missing where there are too few answers, or draws, to tell.

    Of many pairs, the least p-value of few draws is not significant after the correction.
    """
    p, enough = rows["p_holm"], rows["p_value"] > 1 / (draws + 1)
    return p.where(((p < ALPHA) | enough) & rows["ci_low"].notna())


def compared(
    rows: pd.DataFrame, lower: bool, draws: int, than: str, of: str
) -> tuple[list[str], list[str]]:
    """What is better and what is worse in words that follow "it is", and what has no test.

    Args:
        rows: of :func:`~ood_lab.metrics.resampling.clustered_bootstrap.contrast`, with ``on``: what
            it is held against.
        lower: less is better.
        draws: of the bootstrap.
        than: before what it is better or worse than.
        of: before what it does not significantly differ from.
    """
    p, parts = tested(rows, draws), []
    for word, turned in (("better", lower), ("worse", not lower)):
        if len(part := rows[(p < ALPHA) & ((rows["difference"] > 0) != turned)]):
            size = f"{spread_of(part['difference'].abs(), 1)} points"
            if len(part) == 1:
                ends = sorted((-1 if turned else 1) * part[["ci_low", "ci_high"]].iloc[0])
                size += f" [{', '.join(map(percent, ends))}]"
            parts.append(f"{size} {word} {than} {listing(part['on'])}")
    if alike := list(rows.loc[p >= ALPHA, "on"]):
        parts.append(f"not significantly different {of} {listing(alike)}")
    return parts, list(rows.loc[p.isna(), "on"])
