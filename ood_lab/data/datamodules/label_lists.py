"""Lists of classes in the column ``label``: an image of multi-label data has any number."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from ood_lab.common.errors import UserError, reported_as
from ood_lab.data.dataset import UNKNOWN
from ood_lab.data.sources.label_names import matched, mismatch, ordered_names
from ood_lab.data.sources.source_settings import Listed
from ood_lab.schema.label_codes import LISTS, SEVERAL


def with_lists(listed: Listed, classes: Sequence[str] | None, source: str) -> Listed:
    """Reads every label as a list of classes, into the column ``label_list``.

    A label is ``cat;dog`` or a JSON list, ``["cat", "dog"]``; ``[]`` is an image of no class. In
    the column ``label``, it becomes -2.

    Args:
        listed: read with each text as a class.
        classes: of train; None = those found here.
        source: the images, for messages.

    Raises:
        UserError: a class that train does not have, or twice, or a list that is not JSON.
    """
    lists = [_names(text, source) for text in listed.classes]
    present = {name for names in lists for name in names}
    names_of_classes = ordered_names(present) if classes is None else list(classes)
    position, _ = matched(present, names_of_classes, True)
    if unknown := sorted(present - position.keys()):
        raise UserError(mismatch(present, names_of_classes, unknown[0], source))
    texts = [
        json.dumps(
            [names_of_classes[place] for place in sorted({position[name] for name in names})],
            ensure_ascii=False,
        )
        for names in lists
    ]
    labels = listed.table["label"]
    table = listed.table.assign(
        label=np.where(labels >= 0, SEVERAL, UNKNOWN),
        **{LISTS: labels.map(dict(enumerate(texts)))},
    )
    return Listed(table, names_of_classes, listed.store)


def _names(text: str, source: str) -> list[str]:
    if not text.startswith("["):
        return [name for part in text.split(";") if (name := part.strip())]
    with reported_as(
        f'{source}: label {text} is not a JSON list: write ["cat", "dog"] or cat;dog', ValueError
    ):
        names = [str(name).strip() for name in json.loads(text)]
    if len(set(names)) < len(names):
        raise UserError(f"{source}: label {text} names a class twice: give a list of names")
    return names
