"""Sentences: a template of each page has them, a macro a subject and a sentence a line.

Filters are the only way from a value to its text: ``percent`` (one decimal), ``interval`` (a row's
value with its 95% interval), ``points`` (a row's difference), ``hundredths`` (18 of 100), ``p``,
``share`` (percent of an estimate with its interval), ``span`` (from the least to the largest),
``strength`` (of an AUROC on either side of 50%), ``of_statistic`` (a statistic of images),
``differs`` (what images with more or less of it are called), ``listing`` (names, of many the
first), ``listed`` (all of them) and ``counted`` (with a noun).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pandas as pd

from ood_lab.common.english import counted, listed
from ood_lab.report.rendering.metric_definitions import DAGGER, percent
from ood_lab.report.rendering.sentences import listing, spread_of, value_of
from ood_lab.schema.image_statistics import value_text, words_of


def sentences(template: str, subject: str, *values: Any, **named: Any) -> list[str]:
    """What a macro of a template says.

    Args:
        template: below ``ood_lab/report``, as ``verdict/words.j2``.
        subject: the macro.
        values: its arguments.
        named: its arguments by name.
    """
    text: str = getattr(_template(template).module, subject)(*values, **named)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def points(row: Mapping[Any, Any], sign: int = 1) -> str:
    """``2.1 points [0.3, 3.9]`` of a difference with its interval, shares."""
    ends = sorted(sign * 100 * row[key] for key in ("ci_low", "ci_high"))
    return f"{sign * 100 * row['value']:.1f} points [{ends[0]:.1f}, {ends[1]:.1f}]"


def differs(cause: Mapping[Any, Any] | pd.Series) -> str:
    """What the images of a dataset are called: "darker", of a row of kind ``cause``."""
    return words_of(str(cause["statistic"]))[int(cause["value"] > 0.5)]


@cache
def _template(name: str) -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # slow to load, for commands

    environment = Environment(
        loader=PackageLoader("ood_lab.report", "."),
        autoescape=False,  # texts for terminals, too; a page escapes them
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
        "of_statistic": lambda value, statistic: value_text(statistic, value),
        "differs": differs,
        "p": lambda p: f"{p:.2g}" if p >= 1e-4 else f"{p:.0e}",
        "listing": lambda names: listing(list(names)),
        "listed": lambda names, before="and": listed(list(names), before),
        "counted": counted,
    }
    environment.tests["missing"] = pd.isna
    environment.globals["DAGGER"] = DAGGER
    return environment.get_template(name)
