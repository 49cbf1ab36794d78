"""Columns of tables of images: groups, labels, and the two axes of shift."""

from __future__ import annotations

import re
from typing import Literal

Axis = Literal["semantic", "covariate"]
AXES: tuple[Axis, Axis] = ("semantic", "covariate")
#: Columns of a table of images that hold their levels of shift.
LEVELS = ("semantic_level", "covariate_level")
#: And their distances from ID train, where these were measured.
DEGREES = ("semantic_degree", "covariate_degree")

#: Metrics of shift in units of ID data (:mod:`ood_lab.shift.rulers`); the last where there is none.
CLASS_UNITS, SEVERITY, RATIO = "held_out_class_units", "corruption_severity", "ratio_to_id"

_CELL = re.compile(r"cov_(\d+)_sem_(\d+)\.txt")


def cell_name(covariate: int, semantic: int) -> str:
    """IS-OOD's name of a cell, levels from 0: ``cov_3_sem_5``."""
    return f"cov_{covariate}_sem_{semantic}"


def cell_of_file(name: str) -> tuple[int, int] | None:
    """Covariate and semantic level of a file's name; None if it is not a cell's."""
    match = _CELL.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]))


#: In a table of images: the group, a number that is the same in all sets.
GROUP = "group"
#: In a table of images or scores: the group, or the photograph that an image is made of, by name.
MADE_OF = "made_of"


#: Label of an image of multi-label data, which has any number of classes.
SEVERAL = -2
#: Column of the classes of such an image, a JSON list of names; missing where they are not known.
LISTS = "label_list"
