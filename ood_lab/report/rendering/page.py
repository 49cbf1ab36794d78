"""A page is a list of blocks; one template renders every page, as a single file."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from ood_lab.common.files import read_json, write_text
from ood_lab.report.rendering.blocks import (
    Block,
    FigureFile,
    Folded,
    Menu,
    Pictures,
    PlannedFigure,
    Text,
    Words,
)
from ood_lab.report.rendering.metric_definitions import finding_sentences
from ood_lab.report.rendering.table import Cell, Group, Head, Table
from ood_lab.schema.run_record import RunRecord

#: What a run shows first, on its page and in the terminal, is kept beside its results.
SUMMARY = "summary.json"
#: Of a longer list in the record, such as a thousand classes, only the first are shown.
_LISTED = 40
#: Pixels of a figure that is 7.2 inches wide.
_FULL = 900


@dataclass(frozen=True)
class Section:
    """A heading, which the navigation leads to, and the blocks below it."""

    title: str
    blocks: Sequence[Block]
    beside: Sequence[Block] = ()


@dataclass(frozen=True)
class Page:
    """Everything that a page shows, in order.

    Attributes:
        title: of the run.
        sentence: below it.
        facts: name, value and remark of the numbers at the top.
        warnings: what to know before a number is believed, behind those of the record.
        before: blocks above the results.
        summary: what the terminal prints, too; blocks of the style ``answer`` come first.
        sections: what only the page shows.
        thumbnails: pictures as data URIs.
        definitions: name and words.
        record: all of it is shown, its ``findings`` (of the check of the data) and ``warnings``
            above everything else.
        downloads: files of the run folder; missing ones are skipped.
    """

    title: str
    sentence: str = ""
    facts: Sequence[tuple[str, str, str]] = ()
    warnings: Sequence[str] = ()
    before: Sequence[Section] = ()
    summary: Sequence[Block] = ()
    sections: Sequence[Section] = ()
    thumbnails: Sequence[str] = ()
    definitions: Sequence[tuple[str, str]] = ()
    record: RunRecord = field(default_factory=RunRecord)
    downloads: Sequence[str] = ()

    def write(self, path: Path) -> Path:
        """Draws the figures below ``figures``, and writes the page whole or not at all.

        A figure that cannot be drawn is skipped with a warning.
        """
        folder = path.parent
        answer = [b.text for b in self.summary if isinstance(b, Text) and b.style == "answer"]
        results = [b for b in self.summary if not isinstance(b, Text) or b.style != "answer"]
        parts = [*self.before, Section("Results", results), *self.sections]
        parts.append(Section("Definitions", [Words(self.definitions)] if self.definitions else []))
        above = ("findings", "warnings")
        rest = {key: value for key, value in self.record.facts().items() if key not in above}
        pairs = flatten(rest) if rest else []
        warnings = [
            *finding_sentences(self.record.findings),
            *self.record.warnings,
            *self.warnings,
        ]
        parts.append(Section("Manifest", [Words(pairs, "manifest")] if pairs else []))
        planned = [block for part in parts for block in (*part.blocks, *part.beside)]
        drawn = _drawn(planned, folder / "figures")
        shown = [
            Section(s.title, *(list(_rendered(of, folder, drawn)) for of in (s.blocks, s.beside)))
            for s in parts
        ]
        text = page_template().render(
            title=self.title,
            sentence=self.sentence,
            answer=answer,
            facts=self.facts,
            warnings=warnings,
            sections=[section for section in shown if section.blocks],
            intervals=any(
                isinstance(block, Table) and block.has_hidden_intervals
                for section in shown
                for block in _leaves(section.blocks)
            ),
            thumbnails=self.thumbnails,
            manifest=[],
            downloads=[name for name in self.downloads if (folder / name).exists()],
        )
        write_text(text, path)
        return path


def _drawn(blocks: Sequence[Any], folder: Path) -> dict[PlannedFigure, FigureFile]:
    """The planned figures among these blocks that could be drawn, all of them at once."""
    from ood_lab.report.figures.drawing import write_all  # drawing is slow to load

    plan = [block for block in _leaves(blocks) if isinstance(block, PlannedFigure)]
    written = write_all(folder, plan) if plan else []
    return {figure: file for figure in plan if (file := figure.file(folder)) in written}


def _rendered(
    blocks: Sequence[Any], folder: Path, drawn: Mapping[PlannedFigure, FigureFile]
) -> Iterator[Any]:
    """Blocks as the template knows them: figures are embedded; what is empty goes."""
    for block in blocks:
        if isinstance(block, PlannedFigure):
            if block in drawn:
                yield embed(drawn[block], folder)
        elif isinstance(block, FigureFile):
            yield embed(block, folder)
        elif isinstance(block, Folded):
            inner = list(_rendered(block.blocks, folder, drawn))
            if inner:
                yield replace(block, blocks=inner)
        elif isinstance(block, Menu):
            yield replace(block, options=list(_rendered(block.options, folder, drawn)))
        elif not isinstance(block, Pictures) or block.items:
            yield block


def _leaves(blocks: Sequence[Any], page_only: bool = True) -> Iterator[Any]:
    """Blocks and, in the place of a folded one or a menu, what is in it."""
    for block in blocks:
        if isinstance(block, Menu):
            yield from _leaves(block.options, page_only)
        elif not isinstance(block, Folded):
            yield block
        elif page_only or not block.page_only:
            yield from _leaves(block.blocks, page_only)


def write_summary(blocks: Sequence[Block], folder: Path, part: str) -> None:
    """Keeps what a run shows first, so that it can be shown again.

    Args:
        blocks: in order.
        folder: of the run.
        part: of the run that shows them; the others are kept.
    """
    known = read_json(folder / SUMMARY) if (folder / SUMMARY).exists() else {}
    known[part] = [{"kind": block.kind, **asdict(block)} for block in printed(blocks)]
    # A number of numpy becomes one of Python.
    text = json.dumps(known, ensure_ascii=False, default=lambda number: number.item())
    write_text(text, folder / SUMMARY)


def printed(blocks: Sequence[Block]) -> Iterator[Table | Text]:
    """What of these blocks a terminal can show."""
    return (b for b in _leaves(blocks, page_only=False) if isinstance(b, Table | Text))


def read_summary(folder: Path) -> list[Table | Text]:
    """What :func:`write_summary` has kept.

    Raises:
        UserError: the file is missing or damaged.
    """
    parts = read_json(folder / SUMMARY).values()
    return [_block(dict(found)) for part in parts for found in part]


def _block(found: dict[str, Any]) -> Table | Text:
    if found.pop("kind") == Text.kind:
        return Text(**found)
    found["heads"] = [Head(**head) for head in found["heads"]]
    found["groups"] = [Group(**group) for group in found["groups"]]
    found["rows"] = [[Cell(**cell) for cell in row] for row in found["rows"]]
    return Table(**found)


@cache
def page_template(name: str = "page.html.j2") -> Any:
    """A template of this package, to be rendered with all of its variables."""
    environment = Environment(
        loader=PackageLoader("ood_lab.report.rendering", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def embed(figure: FigureFile, folder: Path) -> dict[str, Any]:
    """A figure inside a page of ``folder``, with links to its files."""
    drawn = figure.svg.read_bytes()
    data = base64.b64encode(drawn).decode()
    width = re.search(rb'<svg [^>]*width="([0-9.]+)pt"', drawn)
    return {
        # A narrow figure is not blown up to the width of the others.
        "width": round(_FULL / 7.2 * float(width[1]) / 72) if width else _FULL,
        "kind": "figure",
        "title": figure.title,
        "caption": figure.caption,
        "uri": f"data:image/svg+xml;base64,{data}",
        "files": [
            (kind, Path(os.path.relpath(file, folder)).as_posix())
            for kind, file in (("PNG", figure.png), ("SVG", figure.svg))
        ],
    }


def flatten(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """A nested mapping as ``(dotted key, text)`` pairs, in order."""
    if isinstance(value, Mapping) and value:
        pairs = []
        for key, inner in value.items():
            pairs += flatten(inner, f"{prefix}.{key}" if prefix else str(key))
        return pairs
    if isinstance(value, (list, tuple)):
        texts = [str(v) for v in value]
        if len(texts) > _LISTED:
            texts = [*texts[:_LISTED], f"... ({len(texts):,} in all)"]
        return [(prefix, ", ".join(texts) or "none")]
    return [(prefix, "none" if value is None or value == {} else str(value))]
