"""What distances of images show, in sentences."""

from __future__ import annotations

import pandas as pd

from ood_lab.common.english import listed
from ood_lab.report.rendering.sentences import listing, spread_of
from ood_lab.report.shift.shift_tables import rows_of
from ood_lab.schema.image_columns import AXES
from ood_lab.schema.results import ID_TEST, Names

#: Template of other sentences.
WORDS = "shift/words.j2"


def farthest_sentences(summary: pd.DataFrame, axes: Names) -> list[str]:
    """The farthest of several sets on average, see :func:`~.shift_tables.summary_tables`."""
    parts = []
    for axis in AXES:
        rows = rows_of(summary, axis).set_index("dataset")
        ood = rows.drop(index=ID_TEST)
        of_id, last = rows["mean"][ID_TEST], ood.iloc[-1]
        parts.append(f"for {last.name} {axes[axis]} ({last['mean']:.2f}; ID test: {of_id:.2f})")
    return [f"The mean distance is largest {listed(parts)}."] if len(ood) > 1 else []


def agreement_sentences(correlations: pd.DataFrame, axes: Names) -> list[str]:
    """How well distances by LAID follow the levels that sets bring along; see ``agreement``."""
    rows = correlations[
        correlations["spearman"].notna() & (correlations["decomposition"] == "laid")
    ]
    of = rows[rows["degree"] == "D_" + rows["level"]].set_index("level")["spearman"]
    parts = [f"{spread_of(of[[axis]], 2, 1)} {words}" for axis, words in axes.items() if axis in of]
    sets = listing(list(dict.fromkeys(correlations["dataset"])))
    begins = f"The rank correlation of measured distances with the known levels of {sets} is"
    return [f"{begins} {listed(parts)}."] if parts else []
