"""What a run of a benchmark prints, and its page shows first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ood_lab.lvlm.answers.asking_facts import asking_sentence
from ood_lab.lvlm.pages.benchmark_page import Scored, difference_table, form_table
from ood_lab.lvlm.pages.benchmark_record import BenchmarkRecord
from ood_lab.lvlm.pages.result_sentences import found_sentences
from ood_lab.lvlm.scoring.sample_spread import spread_table
from ood_lab.report.rendering.blocks import Text
from ood_lab.report.rendering.table import Table


def summary_blocks(
    record: BenchmarkRecord,
    run: Scored,
    draws: int,
    thinking: Scored | None = None,
    other: Path | None = None,
) -> Iterator[Table | Text]:
    """Sentences, the benchmark's own tables, comparisons, and how the answers came about.

    Args:
        record: the benchmark.
        run: with its tables ``forms``, ``samples`` and ``models``, as far as they were made.
        draws: of the bootstrap.
        thinking: the same questions with a chain of thought, where the run asks both.
        other: the run in the other form, where the forms of two runs are compared.
    """
    again = 0 if thinking is None else len(thinking.judged["judged"])
    told = (record.told, record.told_as, record.asks[0], draws, again)
    yield from (Text(sentence, "answer") for sentence in found_sentences(run, *told))
    yield from record.summary(run)
    for block in () if thinking is None else record.summary(thinking):
        if isinstance(block, Table):
            yield replace(block, caption=f"Chain of thought. {block.caption}")
    tables, sets, metrics = run.tables, record.sets, record.compared
    if "forms" in tables:
        yield form_table(tables["forms"], sets, metrics, other)
    if "samples" in tables:
        yield spread_table(tables["samples"], sets, metrics)
    if "models" in tables:
        title = "Models on the same questions, points"
        given = sets if "split" in tables["models"] else None
        yield difference_table(title, tables["models"], {}, metrics, given)
    if run.record.asking:
        yield Text(asking_sentence(run.record.asking), "note")
    read_by = [f"{name} ({source})" for name, source in run.record.parsers.items()]
    yield Text(f"Replies are read by {'; '.join(read_by)}.", "note")
