"""The one-page report of a run: a single file that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ood_lab.report.blocks import FigureFile
from ood_lab.report.dating import dating_notes, dating_tables
from ood_lab.report.html_tables import (
    all_metrics_table,
    failure_table,
    level_tables,
    main_table,
)
from ood_lab.report.mistakes import Thumbnails, find_mistakes
from ood_lab.report.page import embed, flatten, page_template, save_page
from ood_lab.report.pictures import LoadImage, Pictures
from ood_lab.report.protocol import (
    definitions_of,
    finding_sentences,
    fpr95_sentence,
    percent,
    star_sentence,
)
from ood_lab.report.view import RunView
from ood_lab.words import counted


def write_report(
    path: Path | str,
    results: pd.DataFrame,
    scores: pd.DataFrame,
    *,
    figures: Sequence[FigureFile] = (),
    manifest: Mapping[str, Any] | None = None,
    protocol: str = "openood",
    significance: pd.DataFrame | None = None,
    reads: Mapping[str, str] | None = None,
    refused: Mapping[str, str] | None = None,
    load_image: LoadImage | None = None,
    classes: Sequence[str] = (),
    id_dataset: str = "test",
    downloads: Sequence[str] = (),
    title: str = "OOD detection report",
    dating: pd.DataFrame | None = None,
    dating_figure: FigureFile | None = None,
) -> Path:
    """Writes ``report.html``, with styles, script and images inside.

    Args:
        path: the file to write; replaced as a whole.
        results: long results table of one model and seed.
        scores: scores table, higher = more OOD.
        figures: what :func:`ood_lab.report.run_figures.write_figures` returned; embedded.
        manifest: versions, identities, hyperparameters; nested mappings become dotted keys,
            and the lists ``findings`` (of the check of the data) and ``warnings`` are shown first
            on the page; sets with findings are marked.
        protocol: which FPR95 the results hold.
        significance: see :func:`ood_lab.report.console.console_tables`.
        reads: detector → what it looks at, a column of the first table.
        refused: detector → why it could not work here.
        load_image: ``(dataset, index)`` → PIL image, encoded bytes or None; without it the
            most confident mistakes are left out.
        classes: names of the ID classes, position = label.
        id_dataset: the ID test set in ``scores``.
        downloads: files beside the report, by relative name.
        title: what was run.
        dating: the dating table, where the ID classes have levels or a category.
        dating_figure: its figure.

    Raises:
        UserError: unknown protocol.
        ValueError: the results hold several models or seeds.
    """
    path = Path(path)
    given = dict(manifest or {})
    findings, warnings = given.pop("findings", []), given.pop("warnings", [])
    warnings = [warnings] if isinstance(warnings, str) else warnings
    view = RunView(results, significance, reads, findings)
    shown = bool(view.detectors and view.sets)
    mistakes, thumbnails = [], []
    if load_image is not None and shown:
        pictures = Pictures(load_image)
        store = Thumbnails(pictures)
        mistakes = find_mistakes(scores, view.detectors, view.sets, id_dataset, classes, store)
        thumbnails = store.uris
        pictures.warn(path.name)
    page = page_template("template.html.j2").render(
        title=title,
        sentence=fpr95_sentence(protocol) if shown else "",
        facts=_facts(view),
        warnings=[*finding_sentences(findings), *warnings],
        main=main_table(view) if shown else None,
        stars=star_sentence(view.has_significance) if view.has_marks else "",
        refused=refused or {},
        details=[*level_tables(view), *failure_table(view), all_metrics_table(view)]
        if shown
        else [],
        left_out=[*(view.interval_notes if shown else []), *view.left_out],
        figures=[embed(figure, path.parent) for figure in figures],
        mistakes=mistakes,
        thumbnails=thumbnails,
        definitions=definitions_of(results),
        manifest=flatten(given) if given else [],
        downloads=downloads,
        dating=_dating(dating, dating_figure, path.parent) if dating is not None else {},
    )
    return save_page(path, page)


def _facts(view: RunView) -> list[tuple[str, str, str]]:
    """Name, value and remark of the numbers at the top of the page."""
    facts = []
    accuracy = view.get("id_accuracy", None)
    if not math.isnan(accuracy.value):
        ends = f"95% interval {percent(accuracy.low)} to {percent(accuracy.high)}"
        remark = ends if accuracy.has_interval else ""
        facts.append(("ID accuracy", f"{percent(accuracy.value)}%", remark))
    for name, found in view.csid_accuracies:
        drop = f"{100 * (found.value - accuracy.value):+.1f} points, {found.n_id:,} images"
        facts.append((f"ID accuracy, {view.marked(name)}", f"{percent(found.value)}%", drop))
    if view.detectors and view.sets:
        best = view.detectors[0]
        auroc, fpr95 = (percent(view.mean(m, best).value) for m in ("auroc", "fpr95"))
        mean = "mean " if len(view.sets) > 1 else ""
        title = f"Best {mean}AUROC" if len(view.detectors) > 1 else "Detector"
        facts.append((title, best, f"{mean}AUROC {auroc}%, {mean}FPR95 {fpr95}%"))
        n_ood = sum(view.get("auroc", best, ood).n_ood for ood in view.sets)
        order = f", {view.order}" if view.order else ""
        facts.append(("OOD sets", str(len(view.sets)), f"{counted(n_ood, 'image')}{order}"))
    n = len(view.detectors)
    scored = f"{n} detector{'s' * (n > 1)}" if n else ""
    facts.append((f"{view.marked('test', 'ID test')} images", f"{view.n_id:,}", scored))
    return facts


def _dating(dating: pd.DataFrame, figure: FigureFile | None, folder: Path) -> dict[str, Any]:
    return {
        "tables": dating_tables(dating),
        "notes": dating_notes(dating),
        "figure": embed(figure, folder) if figure else None,
    }
