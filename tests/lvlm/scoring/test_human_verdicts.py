"""`task=audits`: error rates and agreement from verdicts."""

import numpy as np
import pandas as pd
import pytest
from cli import call, run_folders
from scipy.stats import binomtest
from sklearn.metrics import cohen_kappa_score

from ood_lab.schema.results import read_results


@pytest.fixture
def people(tmp_path):
    """Two copies of an audit with verdicts that mostly agree; the second has looked at fewer."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"image": range(60), "label": ["yes", "no"] * 30})
    first = rng.choice(["accept", "reject"], 60, p=[0.8, 0.2])
    flip = rng.random(60) < 0.1
    second = np.where(flip, np.where(first == "accept", "reject", "accept"), first)
    files = []
    for name, verdict in (("anna", first), ("boris", np.where(np.arange(60) < 50, second, ""))):
        files.append(tmp_path / f"{name}.csv")
        rows.assign(verdict=[v.upper() for v in verdict]).to_csv(files[-1], index=False)
    return files, first, second[:50]


def test_rates_and_kappa_are_those_of_other_libraries(people, tmp_path, capsys):
    files, first, second = people
    line = ("task=audits", f"task.files=[{files[0]},{files[1]}]", "task.by=label")
    assert call("eval.py", *line, "logger=none", f"paths.outputs={tmp_path}/out") == 0
    results = read_results(run_folders(tmp_path / "out")[-1])
    rate = results[(results["metric"] == "error_rate") & results["part"].isna()].iloc[0]
    found = binomtest(int((first == "reject").sum()), 60).proportion_ci(method="exact")
    assert rate["value"] == (first == "reject").mean()
    assert (rate["ci_low"], rate["ci_high"]) == pytest.approx((found.low, found.high))
    yes = results[(results["part"] == "yes") & results["audit"].str.contains("anna")].iloc[0]
    assert (yes["value"], yes["n"]) == ((first[::2] == "reject").mean(), 30)
    kappa = results[results["metric"] == "kappa"].iloc[0]
    assert kappa["value"] == pytest.approx(cohen_kappa_score(first[:50], second))
    assert kappa["ci_low"] < kappa["value"] < kappa["ci_high"]
    assert kappa["n"] == 50
    assert "Cohen's kappa" in capsys.readouterr().out


def test_each_kind_of_error_has_a_rate_and_kappa_does_not_need_it(people, tmp_path):
    files, first, second = people
    rows = pd.read_csv(files[0], dtype=str, keep_default_na=False)
    rejected = np.flatnonzero(first == "reject")
    rows["error"] = ""
    rows.loc[rejected, "error"] = "congruous"
    rows.loc[rejected[0], "error"] = "labelling"
    rows.to_csv(files[0], index=False)
    line = ("task=audits", f"task.files=[{files[0]},{files[1]}]", "task.by=label", "logger=none")
    assert call("eval.py", *line, f"paths.outputs={tmp_path}/out") == 0
    results = read_results(run_folders(tmp_path / "out")[-1])
    anna = results[results["audit"].str.endswith("anna.csv") & results["part"].isna()]
    values = anna[anna["metric"] == "error_rate"].set_index(anna["error"].fillna("all"))
    counts = {"all": len(rejected), "congruous": len(rejected) - 1, "labelling": 1}
    assert (60 * values["value"]).round(9).to_dict() == counts
    found = binomtest(1, 60).proportion_ci(method="exact")
    ends = values.loc["labelling", ["ci_low", "ci_high"]].tolist()
    assert ends == pytest.approx([found.low, found.high])
    kappa = results[results["metric"] == "kappa"].iloc[0]
    assert kappa["value"] == pytest.approx(cohen_kappa_score(first[:50], second))


def test_rows_are_drawn_for_people(people, tmp_path):
    line = ("task=audits", f"task.files=[{people[0][0]}]", "task.by=label", "task.draw=12")
    assert call("eval.py", *line, "logger=none", f"paths.outputs={tmp_path}/out") == 0
    rows = pd.read_csv(run_folders(tmp_path / "out")[-1] / "to_check.csv")
    assert rows["label"].value_counts().to_dict() == {"yes": 12, "no": 12}
    assert rows["verdict"].isna().all()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("task.files=[none.csv]", "no such file"),
        ("task.by=colour", "colour"),
        ("empty", "has no verdict yet"),
    ],
)
def test_mistakes_are_one_line(people, tmp_path, capsys, more, words):
    files = people[0]
    if more == "empty":
        pd.read_csv(files[0]).assign(verdict="").to_csv(files[0], index=False)
        more = "task.by=null"
    line = ("task=audits", f"task.files=[{files[0]}]", more, "logger=none")
    assert call("eval.py", *line, f"paths.outputs={tmp_path}/out") == 1
    assert words in capsys.readouterr().err


@pytest.mark.slow
def test_objects_that_were_not_chosen_are_no_questions(tmp_path):
    """ORIC lists them, and questions for training, in the same file."""
    rows = [
        *[("yes", "True", "bench", "accept")] * 6,
        *[("yes", "True", "bench", "reject")] * 2,
        *[("yes", "True", "train", "reject")] * 3,
        *[("no", "False", "bench", "reject")] * 9,
    ]
    audit = pd.DataFrame(rows, columns=["label", "chosen", "file", "verdict"])
    audit.assign(row=range(len(audit))).to_csv(tmp_path / "audit.csv", index=False)
    line = ("task=audits", f"task.files=[{tmp_path / 'audit.csv'}]", "task.by=file")
    assert call("eval.py", *line, f"paths.outputs={tmp_path}/out") == 0
    results = read_results(run_folders(tmp_path / "out")[-1])
    assert results["n"].tolist() == [11, 8, 3]
    assert results["value"].tolist() == [5 / 11, 2 / 8, 1]
