"""All that is known of the questions of a run, and of their sets, before anyone answers them."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ood_lab.lvlm.annotations.image_contents import Contents
from ood_lab.lvlm.image_text.clip_space import Spaces
from ood_lab.lvlm.object_questions.object_facts import (
    AreaOf,
    annotated_areas,
    with_cosines,
    with_facts,
)
from ood_lab.lvlm.object_questions.question_sets import QuestionSets
from ood_lab.lvlm.object_questions.set_analyses import analyses_of, annotated_shares


def known_of(
    sets: QuestionSets,
    contents: Contents | None,
    spaces: Spaces,
    area_of: AreaOf,
    edges: tuple[float, float],
    **resampling: Any,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What annotations and CLIPs say of questions.

    Args:
        sets: the questions.
        contents: of their images; None = there are no annotations.
        spaces: of the images, by the name of the CLIP; the texts of the first give ``cosine``.
        area_of: size of a category with several objects.
        edges: of the tiers of size: sides of squares, pixels.
        resampling: ``draws`` and ``seed``, see
            :func:`~ood_lab.metrics.resampling.clustered_bootstrap.clustered`.

    Returns:
        All questions with ``split`` and what is known of each; and of whole sets, see
        :func:`~ood_lab.lvlm.object_questions.set_analyses.analyses_of`.
    """
    annotations, first = sets.pool.annotations, next(iter(spaces), None)

    def known(rows: pd.DataFrame) -> pd.DataFrame:
        if annotations is not None and contents is not None:
            rows = with_facts(rows, annotations, contents, area_of, edges)
        return rows if first is None else with_cosines(rows, spaces[first], sets.objects)

    table = sets.table(known)
    found = analyses_of(table, spaces, first, **resampling)
    if contents is not None:
        shares = annotated_shares(annotated_areas(contents, area_of), edges)
        found = pd.concat([found, shares], ignore_index=True)
    return table, found
