"""All metrics of several chat models: which rows are shown, which are marked, and how."""

import math
from dataclasses import replace

import pandas as pd
import pytest

from ood_lab.report.leaderboard.benchmark_table import (
    BenchmarkRun,
    both_ways,
    metric_figures,
    metric_rows,
    metric_tables,
)
from ood_lab.report.rendering.paper_tables import latex, markdown
from ood_lab.report.rendering.table import Group, Head, Table, name_cell, number_cell
from ood_lab.schema.run_record import RunRecord

TABLES = {
    "Answers": [["accuracy", "Acc", "higher"], ["yes_rate", "yes-rate", ""]],
    "Captions": [["chair", "CHAIR", "lower"]],
}


def run_of(folder, model, accuracy, half=0.01, **parts):
    """A run with one set ``id``; ``parts``: further accuracies by part."""
    metrics = {"accuracy": accuracy, "yes_rate": 0.5, "chair": 1 - accuracy, "other": 0.3}
    places = [(None, metric, value) for metric, value in metrics.items()]
    places += [(part.replace("_", " "), "accuracy", value) for part, value in parts.items()]
    rows = pd.DataFrame(places, columns=["part", "metric", "value"]).assign(
        model=model,
        split="id",
        unit="pair",
        n=50,
        n_asked=100,
        semantic_level=math.nan,
        covariate_level=math.nan,
        unparsed="wrong",
    )
    rows = rows.assign(ci_low=rows["value"] - half, ci_high=rows["value"] + half)
    level = rows.assign(semantic_level=2.0, value=0.1)
    second = rows.assign(unparsed="drop", value=0.2)
    benchmark = {
        "name": "Toy",
        "about": "scenes",
        "page": "toy.html",
        "tables": TABLES,
        "sets": {"id": "ID"},
        "forms": {"cot": "chain of thought"},
        "finer": ["dataset"],
    }
    record = RunRecord(
        benchmark=benchmark,
        questions={"n": 100, "images": 40, "sha256": "a" * 64},
        asking={"seconds": {"": {"id": 12.5}}},
    )
    run = BenchmarkRun(folder / model)
    vars(run).update(record=record, results=pd.concat([rows, second, level]))  # as read
    return run


NONE = both_ways(pd.DataFrame(), 1000)


def test_every_metric_form_and_dataset_of_the_whole_sets_is_a_row(tmp_path):
    runs = [run_of(tmp_path, "a", 0.9, cot=0.8, dataset_coco=0.7, wording_1=0.6)]
    rows = metric_rows(runs, {}, NONE)
    found = rows.set_index(["label", "table", "part", "metric"])["value"].to_dict()
    assert found == {
        ("a", "Answers", "", "accuracy"): 0.9,
        ("a", "Answers", "", "yes_rate"): 0.5,
        ("a", "Captions", "", "chair"): pytest.approx(0.1),
        ("a, chain of thought", "Answers", "", "accuracy"): 0.8,
        ("a", "Answers", "dataset coco", "accuracy"): 0.7,
        ("a", "Seconds of all calls", "", "seconds"): 12.5,
    }
    best = rows.loc[rows["best"], ["label", "part", "metric"]]
    assert best.to_numpy().tolist() == [["a", "", "accuracy"]]  # of its two forms


def test_marks_follow_the_test_and_without_one_the_intervals(tmp_path):
    runs = [run_of(tmp_path, *of) for of in (("a", 0.9), ("b", 0.887), ("c", 0.884), ("d", 0.2))]

    def marked(tests, metric):
        rows = metric_rows(runs, {}, tests)
        return set(rows.loc[rows["best"] & (rows["metric"] == metric), "label"])

    # Within hypot(0.01, 0.01) = 0.0141 of 0.9 is 0.887; CHAIR is better where it is lower.
    assert marked(NONE, "accuracy") == marked(NONE, "chair") == {"a", "b"}
    assert marked(NONE, "yes_rate") == set()

    def test_of(p):
        row = {"a": "b", "b": "a", "metric": "accuracy", "split": "id"}
        values = {"value_a": 0.887, "value_b": 0.9, "ci_low": -0.02, "p_value": p, "p_holm": p}
        return both_ways(pd.DataFrame([row | values]), 1000)

    assert marked(test_of(0.01), "accuracy") == {"a"}
    assert marked(test_of(0.2), "accuracy") == {"a", "b"}
    assert marked(test_of(0.01), "chair") == {"a", "b"}  # there is no test of it


def test_a_table_has_a_row_a_model_in_every_format_and_a_figure(tmp_path):
    runs = [run_of(tmp_path, "a", 0.9, dataset_coco=0.7), run_of(tmp_path, "b", 0.5)]
    rows = metric_rows(runs, {}, NONE)
    tables = {table.caption: table for table in metric_tables(rows)}
    titles = ("Toy on scenes, Answers, %", "Toy on scenes, Captions, %")
    whole, captions = (tables[title] for title in titles)
    assert [[cell.text for cell in row] for row in whole.rows] == [
        ["a", "90.0", "50.0"],
        ["b", "50.0", "50.0"],
    ]
    assert [cell.best for cell in whole.rows[0]] == [False, True, False]
    assert whole.rows[0][1].interval == "89.0 to 91.0"
    assert [group.note for group, _ in whole.groups] == ["", "100 questions"]
    assert captions.rows[0][1].best
    assert "| a | **90.0±1.0** | 50.0±1.0 |" in markdown(whole)
    assert r"a & \textbf{90.0$\pm$1.0} & 50.0$\pm$1.0" in latex(whole)
    assert "- Bold: best of its column" in markdown(whole)
    assert "Toy on scenes, dataset coco, Answers, %" in tables
    assert tables["Toy on scenes, Seconds of all calls"].rows[0][1].text == "12.5"
    figures = list(metric_figures(rows))
    assert len(figures) == len(tables) - 1
    assert len(figures[0].draw().axes) == 2  # a panel a metric


def test_a_run_that_counts_no_questions_has_a_table_too(tmp_path):
    run = run_of(tmp_path, "a", 0.9)
    run.results["n_asked"] = pd.array([pd.NA] * len(run.results), dtype="Int64")
    tables = metric_tables(metric_rows([run], {}, NONE))
    assert [group.note for group, _ in tables[0].groups] == ["", ""]


def test_a_table_wider_than_a_page_is_several_with_whole_groups():
    sets, metrics = [f"set {n}" for n in range(5)], ["Acc", "F1", "MCC", "yes-rate"]
    cells = [number_cell(k / 20, k / 20 - 0.025, k / 20 + 0.025) for k in range(20)]
    table = Table(
        "Many",
        [Head("model"), *(Head(m, group=Group(name)) for name in sets for m in metrics)],
        [[name_cell("a"), *cells]],
        spreads=True,
    )
    text = markdown(table)
    pipes = [line.split(" | ") for line in text.splitlines() if line.startswith("| a ")]
    assert [cell.strip("| ") for line in pipes for cell in line[1:]] == [
        f"{cell.text}±2.5" for cell in cells
    ]
    assert len(pipes) == latex(table).count(r"\begin{tabular}{lrrrr") > 1
    assert all(len(line) % 4 == 1 for line in pipes)  # the model, and groups of four
    few = replace(
        table,
        spreads=False,
        heads=table.heads[:17],
        rows=[table.rows[0][:17]],
    )
    assert latex(few).count(r"\begin{tabular}") == markdown(few).count("| a |") == 1
