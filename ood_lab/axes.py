"""The two axes of shift: what an image shows, and how it looks."""

from typing import Literal

Axis = Literal["semantic", "covariate"]
AXES: tuple[Axis, Axis] = ("semantic", "covariate")
#: Columns of a table of images that hold their levels of shift.
LEVELS = ("semantic_level", "covariate_level")
