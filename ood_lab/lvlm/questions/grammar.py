"""Articles, plurals and numbers in words."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import TYPE_CHECKING

from ood_lab.common.errors import UserError

if TYPE_CHECKING:
    import inflect


@cache
def english() -> inflect.engine:
    """Inflect's rules; the package is slow to load, and is loaded when first asked for.

    Raises:
        UserError: it is missing.
    """
    if importlib.util.find_spec("inflect") is None:
        raise UserError(
            "articles, plurals and numbers in words need the package inflect: "
            "pip install 'ood_lab[lvlm]'"
        )
    import inflect

    return inflect.engine()
