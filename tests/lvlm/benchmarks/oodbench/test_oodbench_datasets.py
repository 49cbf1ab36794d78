"""Several data sets of OODBench asked together: counts are added up per split."""

import json

import numpy as np
import pandas as pd
import pytest
from cli import call, run_folders

from ood_lab.common.files import read_table
from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.benchmarks.oodbench.page import SPLITS
from ood_lab.lvlm.benchmarks.oodbench.scoring import contrasts, results_of
from ood_lab.lvlm.questions.question_files import read_questions
from ood_lab.run.job.sweeps import headline
from ood_lab.run.tracking.experiment_loggers import answer_values
from ood_lab.schema.finished_run import FinishedRun
from ood_lab.schema.results import whole

SMALL = ("metrics.n_bootstrap=50", "metrics.min_count=2", "logger=none", "lvlm=oracle")


def build(outputs, *arguments):
    before = run_folders(outputs)
    given = ("task=oodbench", *SMALL, "task.until=build", f"paths.outputs={outputs}")
    assert call("eval.py", *given, *arguments) == 0
    (folder,) = set(run_folders(outputs)) - set(before)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Builtin scenes, and others in a file of COCO's format, which has fewer labels."""
    outputs = tmp_path_factory.mktemp("datasets")
    scenes = "annotations.folder=" + str(outputs / "scenes")
    first = build(outputs, "annotations.n=30", "annotations.name=rooms", scenes)
    place = outputs / "others"
    build(outputs, "annotations.n=40", "annotations.seed=1", f"annotations.folder={place}")
    (file,) = place.glob("*/instances.json")
    used = pd.DataFrame(json.loads(file.read_text())["annotations"])["category_id"]
    names = {c["id"]: c["name"] for c in json.loads(file.read_text())["categories"]}
    kept = [names[each] for each in used.value_counts().index[:20]]
    own = (f"annotations.file={file}", f"annotations.images={file.parent / 'images'}")
    own += ("annotations.name=streets", f"annotations.categories=[{','.join(kept)}]")
    return first, build(outputs, "annotations=coco", "task.foreign_clip=true", *own)


def together(outputs, *runs):
    files = ",".join(f"'{run / 'questions.jsonl'}'" for run in runs)
    return ("task=oodbench", *SMALL, f"paths.outputs={outputs}", f"task.datasets=[{files}]")


@pytest.fixture(scope="module")
def pooled(built, tmp_path_factory):
    outputs = tmp_path_factory.mktemp("pooled")
    assert (
        call("eval.py", *together(outputs, *built), "lvlm.accuracy=0.8", figures=["datasets"]) == 0
    )
    (folder,) = run_folders(outputs)
    return folder


def counted(rows):
    """The paper's metrics from the counts of these answers, in plain arithmetic."""
    said, true = rows["parsed"] == "yes", rows["truth"] == "yes"
    tp, fp = (said & true).sum(), (said & ~true).sum()
    tn, fn = (~said & ~true).sum(), (~said & true).sum()
    root = np.sqrt(float((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)))
    return {
        "accuracy": (tp + tn) / len(rows),
        "precision": tp / (tp + fp),
        "recall": tp / (tp + fn),
        "f1": 2 * tp / (2 * tp + fp + fn),
        "mcc": (tp * tn - fp * fn) / root,
    }


def test_counts_of_a_split_are_added_up_over_the_data_sets(pooled):
    results, judged = (read_table(pooled / f"{n}.parquet") for n in ("results", "judged"))
    asked = judged[judged["task"] == "yes_no"]
    first = results[results["unparsed"] == "wrong"]
    cells = first[first["semantic_level"].isna() & first["covariate_level"].isna()]
    for split, rows in asked.groupby("split"):
        parts = {None: rows, **{f"dataset {n}": part for n, part in rows.groupby("dataset")}}
        assert len(parts) == 3
        for part, answers in parts.items():
            of = cells["part"].isna() if part is None else cells["part"] == part
            found = cells[of & (cells["split"] == split)].set_index("metric")
            assert found.loc["accuracy", "n"] == answers["pair_id"].nunique() == len(answers) / 2
            for metric, value in counted(answers).items():
                assert found.loc[metric, "value"] == pytest.approx(value)
    ood_h = asked[asked["split"] == "ood_h"]
    ood = [counted(part)["accuracy"] for _, part in ood_h.groupby("dataset")]
    row = whole(cells).query("split == 'ood_h' and metric == 'accuracy'").iloc[0]
    assert row["value"] != pytest.approx(np.mean(ood), abs=1e-4)  # it is no mean of the data sets
    assert row["ci_low"] < row["value"] < row["ci_high"]


def test_bap_is_of_all_samples_of_a_split(pooled):
    results, judged = (read_table(pooled / f"{n}.parquet") for n in ("results", "judged"))
    for split, rows in judged[judged["task"] == "bap_counting"].groupby("split"):
        found = whole(results).query(f"split == '{split}' and metric == 'bap_counting'").iloc[0]
        assert found["value"] == pytest.approx(rows["correct"].mean())
        assert found["n"] == rows["file"].nunique()
    parts = results.loc[results["metric"] == "bap_counting", "part"].dropna()
    assert set(parts) == {"dataset rooms", "dataset streets"}


def test_every_data_set_is_asked_what_it_is_asked_alone(pooled, built):
    asked = read_questions(pooled / "questions.jsonl")
    for name, run in zip(("rooms", "streets"), built, strict=True):
        alone = read_questions(run / "questions.jsonl")
        here = [q for q in asked if q.meta["dataset"] == name]
        assert [q.question_id for q in here] == [f"{name}/{q.question_id}" for q in alone]
        assert [(q.text, q.answer, q.image) for q in here] == [
            (q.text, q.answer, q.image) for q in alone
        ]
    labels = pd.DataFrame([q.meta for q in asked]).groupby("dataset")["category"].agg(set)
    assert labels["rooms"] - labels["streets"]


def test_what_mixes_id_and_ood_says_so_everywhere(pooled):
    results = read_table(pooled / "results.parquet")
    assert "pooled" not in set(results["split"])
    assert SPLITS["id_and_ood"] == "ID and OOD together"
    assert list(headline(FinishedRun(pooled)))[-1] == "id_and_ood acc."
    assert {"ood_h/accuracy", "id_and_ood/accuracy"} <= set(answer_values(results))
    shown = (pooled / "oodbench.html").read_text()
    assert "rooms and streets" in shown
    assert "OOD-H, streets" in shown
    assert "ID and OOD together, streets" not in shown
    assert (pooled / "figures" / "datasets.png").is_file()
    assert ">pooled<" not in shown


@pytest.mark.slow
def test_another_model_is_asked_the_same_and_compared_in_every_split(pooled, capsys):
    questions = f"task.questions='{pooled / 'questions.jsonl'}'"
    outputs = pooled.parents[2]
    before = run_folders(outputs)
    given = ("task=oodbench", *SMALL, questions, "lvlm.accuracy=0.6", "task.report=false")
    assert call("eval.py", *given, f"task.against=['{pooled}']", f"paths.outputs={outputs}") == 0
    (other,) = set(run_folders(outputs)) - set(before)
    table = read_table(other / "models.csv").query("metric == 'accuracy'").set_index("split")
    assert list(table.index) == ["id", "ood_s", "ood_h", "id_and_ood"]
    two = (read_table(folder / "judged.parquet") for folder in (other, pooled))
    low, high = (t[t["task"] == "yes_no"].groupby("split")["correct"].mean() for t in two)
    for split in ("id", "ood_s", "ood_h"):
        assert table.loc[split, "difference"] == pytest.approx(low[split] - high[split])
    assert "rooms and streets" in capsys.readouterr().out


def test_counts_of_the_paper_s_size_are_pooled_and_not_averaged():
    """OODBench's ID questions: 6,000 of three data sets and 3,556 of the last."""
    sizes = {"coco": (3000, 0.9), "lvis": (3000, 0.8), "nuscenes": (3000, 0.7), "city": (1778, 1.0)}
    rows = []
    for name, (pairs, right) in sizes.items():
        for pair in range(pairs):
            for truth in ("yes", "no"):
                said = truth if pair < right * pairs else {"yes": "no", "no": "yes"}[truth]
                one = {"pair_id": f"{name}{pair}", "truth": truth, "parsed": said, "dataset": name}
                rows.append({**one, "file": str(pair)})
    judged = pd.DataFrame(rows).assign(task="yes_no", split="id", status="parsed", category="car")
    judged["parser"], judged["cut"] = "yes_no", False
    judged["correct"], judged["p_yes"] = judged["parsed"] == judged["truth"], np.nan
    found = results_of(judged, resampling=Resampling(draws=5)).query(
        "metric == 'accuracy' and unparsed == 'wrong'"
    )
    value = found.set_index(found["part"].fillna("all"))["value"]
    assert set(found["split"]) == {"id"}  # one split alone is not "ID and OOD together"
    assert value["all"] == pytest.approx((2700 + 2400 + 2100 + 1778) / 10778)
    assert value["all"] != pytest.approx(np.mean([right for _, right in sizes.values()]), abs=0.01)
    assert value["dataset nuscenes"] == pytest.approx(0.7)
    two = pd.concat([judged.assign(model=name) for name in ("a", "b")])
    assert contrasts(two, resampling=Resampling(draws=5))["difference"].abs().max() == 0


def test_wrong_data_sets_are_one_line_before_any_work(built, tmp_path, capsys):
    first, second = built
    few = "annotations.n=20"
    other = build(tmp_path / "a", few, "annotations.name=more", "task.threshold=0.01")
    twin = build(tmp_path / "b", few, "annotations.name=rooms")
    (tmp_path / "loose").mkdir()
    loose = tmp_path / "loose" / "questions.jsonl"
    loose.write_text((first / "questions.jsonl").read_text())
    for runs, more, message in (
        ((first, twin), (), "both of 'rooms'"),
        ((first, other), (), "another task.threshold: counts"),
        ((first,), (), "give two or more"),
        ((first, tmp_path / "loose"), (), "is not in the folder of a run"),
        ((first, tmp_path / "gone"), (), "there is no such file"),
        ((first, second), (f"task.questions='{loose}'",), "task.datasets excludes"),
    ):
        capsys.readouterr()
        assert call("eval.py", *together(tmp_path / "out", *runs), *more) == 1
        (error,) = capsys.readouterr().err.strip().splitlines()
        assert message in error
    assert not list((tmp_path / "out").rglob("questions.jsonl"))
