"""``task.uncut``: the cut splits and the uncut ones, S' and H' of the paper, in one run."""

from collections import Counter
from types import SimpleNamespace

import pandas as pd
import pytest
from cli import call, run_folders

from ood_lab.builtin.scenes.things import THINGS
from ood_lab.common.files import read_table
from ood_lab.lvlm.answers.asking_facts import seconds_by_set
from ood_lab.lvlm.benchmarks.oodbench.benchmark import OODBench
from ood_lab.lvlm.benchmarks.oodbench.model_statistics import read_runs
from ood_lab.lvlm.benchmarks.oodbench.split_contents import without_rest
from ood_lab.lvlm.questions.question_files import read_questions
from ood_lab.lvlm.scoring.answer_differences import sample_spread
from ood_lab.schema.results import whole

SMALL = (
    *("task=oodbench", "annotations.n=60", "metrics.n_bootstrap=20", "metrics.min_count=2"),
    *("logger=none", "lvlm=oracle", "lvlm.accuracy=0.7"),
)
UNCUT = {"ood_s_uncut": "ood_s", "ood_h_uncut": "ood_h"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same division cut to 15 pairs a split, with what was cut next to it, and whole."""
    outputs, found = tmp_path_factory.mktemp("uncut"), {}
    for name, given in {
        "cut": ["task.most_pairs=15", "task.report=false"],
        "both": ["task.most_pairs=15", "task.uncut=true", "task.form=both"],
        "whole": ["task.most_pairs=null", "task.until=build"],
    }.items():
        before = run_folders(outputs)
        line = (*SMALL, f"paths.outputs={outputs}", *given)
        drawn = ("of_fields", "of_categories", "of_categories_uncut")
        assert call("eval.py", *line, figures=drawn) == 0
        (found[name],) = set(run_folders(outputs)) - set(before)
    return found


def asked(run):
    return [q for q in read_questions(run / "questions.jsonl") if "asked_as" not in q.meta]


def results(run):
    table = read_table(run / "results.parquet")
    part = table["part"].fillna("")
    return table[~part.str.startswith("cot")].reset_index(drop=True)


@pytest.mark.slow
def test_the_cut_splits_are_those_of_the_run_without_the_setting(runs):
    of_both = [q for q in asked(runs["both"]) if not q.meta["split"].endswith("_rest")]
    (for_statistics,) = read_runs([str(runs["both"])]).values()
    assert {*without_rest(for_statistics.judged)["question_id"]} == {q.question_id for q in of_both}
    single = asked(runs["cut"])
    assert of_both == single
    assert {q.meta["split"] for q in single} == {"id", "ood_s", "ood_h"}
    one, both = results(runs["cut"]), results(runs["both"])
    both = both[~both["split"].isin(UNCUT)]
    order = ["metric", "split", "unparsed", "semantic_level", "covariate_level", "part", "unit"]
    first, second = (t.sort_values(order).reset_index(drop=True) for t in (one, both))
    pd.testing.assert_frame_equal(first, second, check_dtype=False)


@pytest.mark.slow
def test_the_uncut_splits_have_every_pair_once(runs):
    """The questions are those of a run that cuts nothing; BAP has as many samples."""
    of_both, single = asked(runs["both"]), asked(runs["whole"])
    for task in ("yes_no", "bap_logic"):
        for split in ("ood_s", "ood_h"):
            here = [q for q in of_both if q.task == task and q.meta["split"].startswith(split)]
            there = [q for q in single if q.task == task and q.meta["split"] == split]
            assert len(here) == len(there) > 15 * (task == "yes_no")
            if task == "yes_no":
                assert {(q.question_id, q.answer) for q in here} == {
                    (q.question_id, q.answer) for q in there
                }
    ids = [q.question_id for q in of_both]
    assert len(set(ids)) == len(ids)
    samples = pd.DataFrame([q.meta for q in of_both if q.task == "bap_logic"])
    samples["split"] = samples["split"].str.removesuffix("_rest")
    assert not samples.duplicated(["split", "image"]).any()
    assert (samples["categories"].map(len) == 2).all()


@pytest.mark.slow
def test_numbers_of_the_uncut_splits_are_counted_from_all_of_their_answers(runs):
    rows, judged = whole(results(runs["both"])), read_table(runs["both"] / "judged.parquet")
    rows = rows[rows["unparsed"].isna() | (rows["unparsed"] == "wrong")]
    found = rows.set_index(["split", "metric"])
    for name, split in UNCUT.items():
        every = judged[judged["split"].isin([split, f"{split}_rest"])]
        answers = every[every["task"] == "yes_no"]
        said, true = answers["parsed"] == "yes", answers["truth"] == "yes"
        tp, fp, fn = (said & true).sum(), (said & ~true).sum(), (~said & true).sum()
        values = {
            "accuracy": answers["correct"].mean(),
            "recall": tp / (tp + fn),
            "f1": 2 * tp / (2 * tp + fp + fn),
            "yes_rate": said.mean(),
            "bap_counting": every[every["task"] == "bap_counting"]["correct"].mean(),
        }
        for metric, value in values.items():
            row = found.loc[(name, metric)]
            assert row["value"] == pytest.approx(value), (name, metric)
            assert row["ci_low"] <= value <= row["ci_high"]
        assert found.loc[(name, "accuracy"), "n"] == len(answers) / 2
        assert found.loc[(name, "accuracy"), "n"] > found.loc[(split, "accuracy"), "n"] == 15
    pooled = judged[(judged["task"] == "yes_no") & ~judged["split"].str.endswith("_rest")]
    assert found.loc[("id_and_ood", "accuracy"), "value"] == pytest.approx(pooled["correct"].mean())
    assert list(dict.fromkeys(rows["split"]))[-1] == "id_and_ood"


@pytest.mark.slow
def test_the_distribution_and_the_page_have_both(runs):
    table = pd.read_csv(runs["both"] / "distribution.csv").query("by == 'category'")
    counts = table.groupby("split")["pairs"].sum()
    kinds = [(q.meta["split"], q.pair_id) for q in asked(runs["whole"]) if q.task == "yes_no"]
    of_whole = pd.DataFrame({*kinds}, columns=["split", "pair"])["split"].value_counts()
    for name, split in UNCUT.items():
        assert counts[split] == 15
        assert counts[name] == of_whole[split]
    fields = pd.read_csv(runs["both"] / "distribution.csv").query("by == 'field'")
    for split in ("id", "ood_s", "ood_h_uncut"):
        parts = {split, UNCUT.get(split), f"{UNCUT.get(split)}_rest"}
        pairs = {q.pair_id: q.meta for q in asked(runs["both"]) if q.task == "yes_no"}
        of = [THINGS[m["category"]].kind for m in pairs.values() if m["split"] in parts]
        found = fields[fields["split"] == split].set_index("value")["pairs"].to_dict()
        assert found == Counter(of)
    figures = runs["both"] / "figures"
    assert (figures / "of_fields.png").is_file()
    assert (figures / "of_categories.png").is_file()
    assert (figures / "of_categories_uncut.png").is_file()
    page = (runs["both"] / "oodbench.html").read_text()
    for words in ("OOD-S uncut", "OOD-H uncut", "Categories of the uncut splits"):
        assert words in page
    assert "ood_s_rest" not in page
    forms = pd.read_csv(runs["both"] / "forms.csv")
    assert {*forms["split"]} == {"id", "ood_s", "ood_h", *UNCUT, "id_and_ood"}


@pytest.mark.slow
def test_another_model_and_the_table_of_models_have_both(runs, capsys):
    outputs = runs["both"].parents[2]
    questions = f"task.questions='{runs['both'] / 'questions.jsonl'}'"
    before = run_folders(outputs)
    given = (*SMALL[2:-1], "lvlm.accuracy=0.9", questions, "task.report=false")
    line = ("task=oodbench", f"task.against=['{runs['both']}']", f"paths.outputs={outputs}")
    assert call("eval.py", *line, *given) == 0
    (other,) = set(run_folders(outputs)) - set(before)
    models = read_table(other / "models.csv")
    assert {*models["split"]} == {"id", "ood_s", "ood_h", *UNCUT, "id_and_ood"}
    for name, split in UNCUT.items():
        tables = [read_table(run / "judged.parquet") for run in (other, runs["both"])]
        parts = [t[t["split"].str.startswith(split) & (t["task"] == "yes_no")] for t in tables]
        first, second = (part["correct"].mean() for part in parts)
        row = models.query(f"split == '{name}' and metric == 'accuracy'").iloc[0]
        assert row["difference"] == pytest.approx(first - second)
    before = run_folders(outputs)
    assert (
        call(
            *("eval.py", "task=benchmarks", f"runs=['{other}','{runs['both']}']", "logger=none"),
            f"paths.outputs={outputs}",
        )
        == 0
    )
    (board,) = set(run_folders(outputs)) - set(before)
    metrics = read_table(board / "benchmark_metrics.csv")
    for table in ("Yes/no questions", "Basic-to-advanced progression"):
        sets = metrics[metrics["table"] == table]["set"]
        assert {"ID", "OOD-S", "OOD-H", "OOD-S uncut", "OOD-H uncut"} <= {*sets}


def test_times_and_agreement_of_an_uncut_split_are_of_both_of_its_parts():
    splits = ["id", "ood_s", "ood_s_rest", "ood_s_rest", "ood_h"]
    table = pd.DataFrame({"question_id": [*"abcde"], "split": splits, "parsed": "yes"})
    times = dict(zip("abcde", (1.0, 2.0, 4.0, 8.0, 16.0), strict=True))
    answers = {name: SimpleNamespace(key=name, latency_s=each) for name, each in times.items()}
    seconds = {"id": 1, "ood_s": 2, "ood_h": 16, "ood_s_uncut": 14}
    assert seconds_by_set(table, answers, OODBench.words.joined) == seconds
    again = table.assign(parsed=["yes", "no", "no", "yes", "yes"])  # b and c say something else
    rows = pd.DataFrame({"split": [*seconds, "id_and_ood"], "metric": "accuracy", "value": 0.5})
    spread = sample_spread([rows, rows], [table, again], {"accuracy": "Acc"}, OODBench.words.joined)
    same = spread[spread["metric"] == "agreement"].set_index("split")["mean"].to_dict()
    expected = {"id": 1, "ood_s": 0, "ood_h": 1, "ood_s_uncut": 1 / 3, "id_and_ood": 2 / 3}
    assert same == pytest.approx(expected)


def test_the_setting_needs_a_cut(tmp_path, capsys):
    line = (*SMALL, "task.most_pairs=null", "task.uncut=true", f"paths.outputs={tmp_path}")
    assert call("eval.py", *line) == 1
    (error,) = capsys.readouterr().err.strip().splitlines()
    assert "task.uncut=true needs task.most_pairs" in error
