"""A page is a list of blocks; one template renders every page, as a single file."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ood_lab.common.files import write_text
from ood_lab.report.rendering.blocks import (
    Block,
    Folded,
    Links,
    Menu,
    Pictures,
    PlannedFigure,
    Section,
    Text,
    Words,
    leaves,
)
from ood_lab.report.rendering.metric_definitions import finding_sentences
from ood_lab.report.rendering.prose import load_template
from ood_lab.report.rendering.table import Table
from ood_lab.report.rendering.thumbnails import Thumbnails
from ood_lab.schema.run_record import RunRecord

#: Of a longer list in the record, such as a thousand classes, only the first are shown.
_LISTED = 40
#: Pixels of a figure that is 7.2 inches wide.
_FULL = 900
#: The record's parts that are above everything else.
_ABOVE = ("findings", "warnings")
#: Files of a run folder that are data for people, and those of them that are not.
_DATA = (".csv", ".parquet", ".jsonl", ".json", ".graphml", ".md", ".tex", ".yaml")
_INTERNAL = {"inputs.parquet", "significance_best.parquet", "summary.json", "hparams.yaml"}


@dataclass(frozen=True)
class Page:
    """Everything that a page shows, in order.

    Attributes:
        title: of the run.
        blocks: sections. The paragraphs of the style ``answer`` among them begin the page.
        sentence: below the answer.
        facts: name, value and remark of the numbers at the top.
        warnings: what to know before a number is believed, behind those of the record.
        pictures: of the images that the blocks show.
        definitions: name and words.
        record: all of it is shown, its ``findings`` (of the check of the data) and ``warnings``
            above everything else.
    """

    title: str
    blocks: Sequence[Section]
    sentence: str = ""
    facts: Sequence[tuple[str, str, str]] = ()
    warnings: Sequence[str] = ()
    pictures: Thumbnails | None = None
    definitions: Sequence[tuple[str, str]] = ()
    record: RunRecord = field(default_factory=RunRecord)

    def write(self, path: Path, figures: str = "figures") -> Path:
        """Draws the figures into a folder next to the page, and writes it whole or not at all.

        A figure that cannot be drawn is skipped with a warning. A page in a run folder links to
        the data there.
        """
        facts = {k: v for k, v in self.record.facts().items() if k not in _ABOVE}
        parts = [
            *self.blocks,
            Section("Definitions", [Words(self.definitions)]),
            Section("Manifest", [Words(flatten(facts) if facts else [], "manifest")]),
        ]
        sections = list(_rendered(parts, _drawn(parts, path.parent, figures)))
        paragraphs = [b for part in self.blocks for b in part.blocks if isinstance(b, Text)]
        text = load_template("rendering/page.html.j2").render(
            title=self.title,
            sentence=self.sentence,
            answer=[block.text for block in paragraphs if block.style == "answer"],
            facts=self.facts,
            warnings=[
                *finding_sentences(self.record.findings),
                *self.record.warnings,
                *self.warnings,
            ],
            sections=sections,
            intervals=any(
                isinstance(block, Table) and block.has_hidden_intervals
                for block in leaves(sections)
            ),
            thumbnails=self.pictures.uris if self.pictures else [],
            downloads=_downloads(path.parent),
        )
        write_text(text, path)
        if self.pictures:
            self.pictures.warn(path.name)
        return path


def _downloads(folder: Path) -> list[str]:
    """The data in a run folder, the results first."""
    if not (folder / "config.yaml").exists():
        return []
    names = {f.name for f in folder.iterdir() if f.suffix in _DATA} - _INTERNAL
    return sorted(names, key=lambda name: (not name.startswith("results"), name))


def _drawn(
    blocks: Sequence[Block], folder: Path, figures: str
) -> dict[PlannedFigure, Links | dict[str, Any]]:
    """What a page of ``folder`` shows of the planned figures among these blocks.

    They are drawn all at once; those that could not be drawn are missing.
    """
    plan = [block for block in leaves(blocks) if isinstance(block, PlannedFigure)]
    if not plan:
        return {}
    from ood_lab.report.rendering.drawing import write_all  # drawing is slow to load

    written = {figure.name: figure for figure in write_all(folder / figures, plan)}
    return {f: _shown(written[f.name], folder, figures) for f in plan if f.name in written}


def _rendered(blocks: Sequence[Any], figures: Mapping[PlannedFigure, Any]) -> Iterator[Any]:
    """Blocks as the template knows them, with the figures that were drawn; what is empty goes."""
    for block in blocks:
        match block:
            case PlannedFigure():
                if block in figures:
                    yield figures[block]
            case Section():
                columns = [list(_rendered(of, figures)) for of in (block.blocks, block.beside)]
                if columns[0]:
                    yield Section(block.title, columns[0], columns[1])
            case Folded():
                if inner := list(_rendered(block.blocks, figures)):
                    yield replace(block, blocks=inner)
            case Menu():
                yield replace(block, options=list(_rendered(block.options, figures)))
            case Text(style="answer" | "title" | "finding"):
                pass  # at the top of the page already
            case Pictures(items=[]) | Words(pairs=[]) | Links(pairs=[]):
                pass
            case _:
                yield block


def _shown(figure: PlannedFigure, folder: Path, figures: str) -> Links | dict[str, Any]:
    """A figure inside a page of ``folder``, with links to its files, or only these."""
    place = Path(figures, figure.name).as_posix()
    files = [("PNG", f"{place}.png"), ("SVG", f"{place}.svg")]
    if figure.linked:
        return Links([(f"{figure.title} ({kind})", file) for kind, file in files])
    data = (folder / files[1][1]).read_bytes()
    width = re.search(rb'<svg [^>]*width="([0-9.]+)pt"', data)
    return {
        # A narrow figure is not blown up to the width of the others.
        "width": round(_FULL / 7.2 * float(width[1]) / 72) if width else _FULL,
        "kind": "figure",
        "title": figure.title,
        "caption": figure.caption,
        "uri": f"data:image/svg+xml;base64,{base64.b64encode(data).decode()}",
        "files": files,
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
