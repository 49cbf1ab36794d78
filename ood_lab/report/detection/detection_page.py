"""What the page and the terminal show of a run that scored detectors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd

from ood_lab.common.english import counted, listed
from ood_lab.metrics import metric_of
from ood_lab.metrics.record import ID_ACCURACY, ID_MAP
from ood_lab.metrics.resampling.group_intervals import photographs
from ood_lab.metrics.resampling.intervals import Estimate
from ood_lab.report.detection.detection_tables import (
    WORDS,
    all_metrics,
    brief_table,
    hierarchy_tables,
    larger_table,
    level_menu,
    level_tables,
    main_table,
)
from ood_lab.report.detection.figure_inputs import FigureInputs
from ood_lab.report.detection.image_strips import (
    COPIES,
    UNUSUAL,
    UNUSUAL_BY,
    IDImages,
    marginal_blocks,
    mistake_blocks,
    near_copy_pictures,
    pixel_blocks,
    place_blocks,
    unusual_id_images,
    without_copies,
)
from ood_lab.report.detection.run_figures import (
    level_blocks,
    planned_figures,
)
from ood_lab.report.rendering.blocks import Block, Folded, Section, Text, texts
from ood_lab.report.rendering.metric_definitions import definitions_of, finding_sentences, percent
from ood_lab.report.rendering.page import Page
from ood_lab.report.rendering.prose import sentences
from ood_lab.report.rendering.summary import LINES, show_blocks, show_warnings
from ood_lab.report.rendering.table import Table
from ood_lab.report.rendering.thumbnails import LoadImage, Thumbnails
from ood_lab.report.results_lookup import BEST, UNGROUPED, RunView
from ood_lab.report.shift.distance_page import MeasuredDistances, sections_of
from ood_lab.schema.finished_run import FinishedRun
from ood_lab.schema.image_columns import DEGREES, LEVELS
from ood_lab.schema.results import ID_TEST

#: Skipped detectors whose reasons a terminal shows.
_REASONS = 3


def detection_blocks(view: RunView, full: bool = False) -> list[Block]:
    """What a run shows first: detectors × OOD sets, then levels, and what was skipped.

    Args:
        view: of the run. The first tables have rows for the detectors that its verdict names.
        full: the first tables have a row for every detector, also where these are many.
    """
    blocks: list[Block] = [Text(_headline(view), "title")]
    if view.csid_accuracies:
        blocks.append(Text(_spectrum(view)))
    if view.detectors and view.sets:
        levels = level_tables(view)
        first = main_table(view)
        brief = len(view.detectors) > UNGROUPED and not full

        def shown(table: Table) -> Table:
            return brief_table(table, view) if brief else table

        blocks.append(shown(first))
        blocks += [level_menu(title, list(map(shown, of))) for title, of in levels.items()]
        blocks += [
            Folded(f"All against larger semantic shift ({ood})", [table], page_only=True)
            for ood in view.level_sets
            if (table := larger_table(view, ood))
        ]
        if brief:
            title = f"All {len(view.detectors)} detectors"
            menus = [level_menu(title, of) for title, of in levels.items()]
            blocks.append(Folded(title, [first, *menus], page_only=True))
    blocks += texts(view.left_out, "note")
    blocks += texts(finding_sentences(view.record.findings), "finding")
    if refused := view.record.refused:
        title = f"Skipped detectors: {', '.join(refused)}"
        blocks.append(Folded(title, texts(_reasons(refused), "note")))
    return blocks


def _reasons(refused: Mapping[str, str]) -> list[str]:
    """Why detectors were skipped."""
    return [f"skipped {name}: {reason}" for name, reason in refused.items()]


def show(view: RunView, folder: Path, full: bool = False, page: bool = True) -> None:
    """Prints the verdict of a run that scored detectors, and keeps it to be shown again.

    Args:
        view: of the run.
        folder: of the run.
        full: before it all tables, with a row for each of many detectors.
        page: whether a page has what there is no room for.
    """
    show_warnings(view.record)
    blocks = _terminal_blocks(view, full)
    show_blocks(blocks, folder, "detection", lines=LINES if page and not full else None)


def tables_of(run: FinishedRun) -> dict[str, Sequence[Block]]:
    """What :func:`show` prints with ``full``, made of the files of a finished run, by its part."""
    return {"detection": _terminal_blocks(RunView.of(run), full=True)} if run.has(BEST) else {}


def _terminal_blocks(view: RunView, full: bool) -> list[Block]:
    blocks = detection_blocks(view, full)
    if not full:
        blocks = [block for block in blocks if isinstance(block, Text)]
        reasons = _reasons(refused := view.record.refused)
        if len(reasons) > _REASONS:
            reasons = [f"Skipped, with the reasons in the report: {', '.join(refused)}."]
        blocks += texts(reasons, "note")
    return blocks + view.verdict.blocks(full=full)


def write_report(
    path: Path | str,
    view: RunView,
    scores: pd.DataFrame,
    *,
    figures: str = "figures",
    features: Mapping[str, np.ndarray] | None = None,
    load_image: LoadImage | None = None,
    legends: Mapping[str, str] = MappingProxyType({}),
    classes: Sequence[str] = (),
    hierarchy: pd.DataFrame | None = None,
    measured: MeasuredDistances | None = None,
    pixels: pd.DataFrame | None = None,
    published: Sequence[Block] = (),
    id_images: IDImages | None = None,
) -> Path:
    """Writes ``report.html``, with styles, script and images inside, and its figures next to it.

    Args:
        path: the file to write; replaced as a whole.
        view: of the run. The page begins with its verdict; its findings and warnings are above.
            All of its record is shown, nested mappings with dotted keys.
        scores: scores table, higher = more OOD; ID test is ``test``.
        figures: folder of PNG (200 dpi) and SVG files, next to the page.
        features: dataset → ``[N, D]`` for the scatter of features.
        load_image: ``(dataset, index)`` → PIL image, encoded bytes or None; without it the
            most confident mistakes are skipped.
        legends: of maps of places, by detector; ``load_image`` knows images with their maps
            (:func:`~ood_lab.report.rendering.thumbnails.map_of`).
        classes: names of the ID classes, position = label.
        hierarchy: the hierarchy table, where the ID classes have levels or a category.
        measured: shift of the images, where that is known.
        pixels: rows of the kind ``pixels``, of maps and masks.
        published: numbers of papers about the same data.
        id_images: the training images, with their scores by :data:`UNUSUAL_BY`.
    """
    verdict, record = view.verdict, view.record
    shown = bool(view.detectors and view.sets)
    store = Thumbnails(load_image or (lambda *_: None))
    mistakes: Sequence[Block] = ()
    marginal: Sequence[Block] = ()
    copies: list[Block] = []
    if load_image is not None:
        if shown:
            mistakes = mistake_blocks(scores, view.detectors, view.sets, classes, store)
            ood, shift = _semantic_shift(view, scores, measured)
            marginal = marginal_blocks(ood, shift, classes, store)
        sets = {name: name for copy in record.near_copies for name, _, _ in copy["images"]}
        copies += near_copy_pictures(record.near_copies, store, sets)
    # All that counts as ID is drawn as one.
    of_id = scores.replace({"dataset": dict.fromkeys(record.csid, ID_TEST)})
    inputs = FigureInputs(view, of_id, features or {}, classes)
    levels = level_blocks(inputs, verdict.named)
    before: list[Section] = []
    after = [Section("Detection by shift level", levels)]
    shift_map: list[Block] = []
    if measured:
        figure, above, below = sections_of(measured, verdict, store)
        before, after = above + after, below
        shift_map.append(figure)
    details = [all_metrics(view)] if shown else []
    chosen = [
        Text(f"{n}: {of['chosen']}") for n, of in record.detectors.items() if of.get("chosen")
    ]
    opening = verdict.blocks(page=True)
    if record.threshold is not None:
        flags = (
            f"{verdict.recommended} flags an image that scores above {record.threshold:.4g} (alpha "
            "0.05): at most 5% of ID images score as high, by the ID validation images."
        )
        opening.append(Text(flags))
    dating: list[Block] = []
    if hierarchy is not None:
        dating += map(Text, sentences(WORDS, "hierarchy", hierarchy))
        dating += hierarchy_tables(hierarchy)
    unusual = [unusual_id_images(id_images, UNUSUAL_BY, store, "train")] if id_images else []
    return Page(
        title=record.title or "OOD detection report",
        sentence=view.fpr95 if shown else "",
        facts=_facts(view, scores),
        blocks=[
            Section("Verdict", opening, shift_map),
            *before,
            Section(
                "Results",
                [
                    *detection_blocks(view),
                    *(Folded(table.caption, [table]) for table in details),
                    Folded("Settings chosen from the number of ID images", chosen),
                ],
            ),
            *after,
            Section(
                "Unusual places", [*pixel_blocks(pixels), *place_blocks(scores, legends, store)]
            ),
            Section("Hierarchical classification", dating),
            Section("Published numbers of these data", published),
            Section("Figures", list(planned_figures(inputs))),
            Section("OOD images with the smallest semantic shift", marginal),
            Section("Most confident mistakes", mistakes),
            Section(COPIES, [*copies, *without_copies(record.near_copies_auroc)]),
            Section(UNUSUAL, unusual),
        ],
        pictures=store,
        definitions=definitions_of(view.table),
        record=record,
    ).write(Path(path), figures)


def _semantic_shift(
    view: RunView, scores: pd.DataFrame, measured: MeasuredDistances | None
) -> tuple[pd.DataFrame, pd.Series]:
    """The OOD images, and their measured semantic distance; without one their semantic level."""
    ood = scores[scores["dataset"].isin([*view.sets, *view.level_sets])]
    if measured is not None and "semantic" in measured.degrees:
        degrees = measured.degrees[["dataset", "index", "semantic"]]
        ood = ood.merge(degrees, "left", on=["dataset", "index"])
        return ood, ood["semantic"]
    if DEGREES[0] in ood:
        return ood, ood[DEGREES[0]]
    levels = ood.reindex(columns=[LEVELS[0]])[LEVELS[0]].astype("float64")
    return ood, levels.where(levels >= 0)


def _headline(view: RunView) -> str:
    """What was run, accuracy and n."""
    parts = [view.record.title] if view.record.title else []
    for title, estimate in _accuracies(view):
        ends = f" [{percent(estimate.low)}, {percent(estimate.high)}]"
        parts.append(f"{title} {percent(estimate.value)}%{ends * estimate.has_interval}")
    return " · ".join([*parts, f"{view.marked('test', 'ID test')} n = {view.n_id:,}"])


def _accuracies(view: RunView) -> Iterator[tuple[str, Estimate]]:
    """What the head gets right on ID test, where that is known."""
    for metric in (ID_ACCURACY, ID_MAP):
        estimate = view.get(metric.name, None)
        if not math.isnan(estimate.value):
            yield metric.title, estimate


def _spectrum(view: RunView) -> str:
    """Accuracy on the sets with shifted covariates, and its distance to that on ID test."""
    accuracy = view.get("id_accuracy", None).value
    parts = [
        f"{view.marked(name)} {percent(estimate.value)}% ({100 * (estimate.value - accuracy):+.1f})"
        for name, estimate in view.csid_accuracies
    ]
    return f"ID accuracy under shifted covariates: {', '.join(parts)}"


def _made_remark(scores: pd.DataFrame) -> str:
    """Of how few photographs the images of some sets are made; empty where of as many."""
    parts = []
    for name, rows in scores.groupby("dataset", sort=False):
        made_of = photographs(rows)
        if made_of is not None and (n := len(set(made_of))) < len(rows):
            parts.append(f"; {name}: {len(rows):,} images in {counted(n, 'group')}")
    return "".join(parts)


def _facts(view: RunView, scores: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Name, value and remark of the numbers at the top of the page."""
    facts, verdict = [], view.verdict
    accuracy = view.get("id_accuracy", None)
    for title, of_head in _accuracies(view):
        ends = f"95% interval {percent(of_head.low)} to {percent(of_head.high)}"
        facts.append((title, f"{percent(of_head.value)}%", ends * of_head.has_interval))
    for name, estimate in view.csid_accuracies:
        drop = f"{100 * (estimate.value - accuracy.value):+.1f} points, {estimate.n_id:,} images"
        facts.append((f"ID accuracy, {view.marked(name)}", f"{percent(estimate.value)}%", drop))
    if view.detectors and view.sets:
        best = verdict.named or view.detectors[0]
        means = {m: f"{percent(view.mean(m, best).value)}%" for m in view.headlines}
        mean = "mean " if len(view.sets) > 1 else ""
        title = f"Highest {mean}AUROC" if len(view.detectors) > 1 else "Detector"
        title = "Recommended detector" if verdict.recommended else title
        shown = ", ".join(f"{mean}{metric_of(m).title} {value}" for m, value in means.items())
        left = f" (of {counted(verdict.n_counted, 'dataset')})" if verdict.left else ""
        facts.append((title, best, shown + left))
        n_ood = sum(view.get("auroc", best, ood).n_ood for ood in view.sets)
        order = f", {view.order}" if view.order else ""
        levelled = [name for name in view.level_sets if name not in view.sets]
        levels = f"; {listed(levelled)} by level" if levelled else ""
        remark = f"{counted(n_ood, 'image')}{order}{levels}{_made_remark(scores)}"
        facts.append(("OOD datasets", str(len(view.sets)), remark))
    scored = counted(len(view.detectors), "detector") if view.detectors else ""
    facts.append((f"{view.marked('test', 'ID test')} images", f"{view.n_id:,}", scored))
    return facts
