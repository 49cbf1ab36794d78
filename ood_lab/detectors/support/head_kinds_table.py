"""Which detectors run on which kind of head: a table of the documentation."""

from __future__ import annotations

from pydoc import locate
from typing import cast

import yaml

from ood_lab.detectors.base import Detector
from ood_lab.models.head_kind import HeadKind, missing
from ood_lab.scripts import conf_files


def kinds_table() -> str:
    """In Markdown, one row a detector: what it reads; for each kind ✓, or what is missing."""
    head = ["key", "reads", *HeadKind]
    rows = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for file in sorted(conf_files("detector"), key=lambda file: file.stem):
        node = yaml.safe_load(file.read_text(encoding="utf-8"))["detector"].get(file.stem)
        if node:
            reads = cast("type[Detector]", locate(node["_target_"])).reads
            lacks = [", ".join(missing(reads, kind.gives)) for kind in HeadKind]
            cells = [f"`{file.stem}`", ", ".join(reads)]
            cells += [f"no {parts}" if parts else "✓" for parts in lacks]
            rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)
