"""Articles, plurals and numbers in words."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING
from unittest import mock

from ood_lab.common.installed_packages import need

if TYPE_CHECKING:
    import inflect


@cache
def english() -> inflect.engine:
    """Inflect's rules; the package is slow to load, and is loaded when first asked for.

    Raises:
        UserError: it is missing.
    """
    need("inflect", "lvlm", "grammar (articles, plurals, numbers in words)")
    import typeguard

    # It rewrites each of its methods, to check types, whenever it is loaded: 2.4 of 2.5 seconds.
    with mock.patch.object(typeguard, "typechecked", lambda method: method):
        import inflect

    return inflect.engine()
