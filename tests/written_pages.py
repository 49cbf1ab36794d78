"""Pages of the docs as people write them: without what ``docs/site/generate.py`` writes."""

import re
from pathlib import Path

from cli import ROOT

_TABLE = re.compile(r"^<!-- table: .+? -->\n.*?^<!-- end of table -->$", re.M | re.S)
_MARK = "<!-- Written by: python docs/site/generate.py -->"


def written(page: Path) -> str:
    """Text of a page, empty lines in place of its generated tables."""
    return _TABLE.sub(lambda table: "\n" * table[0].count("\n"), page.read_text())


#: Of docs/.
DOCS = [p for p in sorted((ROOT / "docs").rglob("*.md")) if _MARK not in p.read_text()]
