"""Tables of the documentation that are made from the code."""

from __future__ import annotations

import re


def with_table(page: str, name: str, table: str) -> str:
    """The page with this Markdown table in place of the one after ``<!-- table: NAME -->``."""
    mark = f"<!-- table: {name} -->\n"
    before, after = page.split(mark)
    return before + mark + table + "\n" + re.sub(r"\A(\|.*\n)*", "", after)
