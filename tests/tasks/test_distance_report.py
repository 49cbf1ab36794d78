"""`python train.py`: distances, levels, detectors and the answer on one page."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from cli import ROOT, call, run_folders
from photos import write_photos

from ood_lab.lvlm.answers.answer_files import read_answers
from ood_lab.metrics import auroc
from ood_lab.report.rendering.summary import show_run
from ood_lab.report.verdict import Verdict
from ood_lab.run.commandline.composition import composed
from ood_lab.run.commandline.resolvers import register_resolvers
from ood_lab.schema.image_columns import AXES
from ood_lab.schema.results import of_kind, read_results
from ood_lab.schema.run_record import RunRecord

FAST = ("trainer.max_epochs=1", "metrics.n_bootstrap=30", "logger=none", "detector=[msp,knn,mds]")
VESSELS = (
    *("data.train=198", "data.val=44", "data.test=66", "data.per_shift_set=40", "data.per_cell=1"),
    *("task.levels=3", "detector.knn.k=5"),
)


LINE = (*VESSELS, *FAST[1:], "trainer.max_epochs=8", "data.batch_size=32")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    outputs = tmp_path_factory.mktemp("how_far")
    line = (*LINE, f"paths.outputs={outputs}")
    assert call("train.py", *line) == 0
    assert call("train.py", "experiment=shift_report", *line) == 0  # the same, shown again
    (folder,) = run_folders(outputs)
    return folder


@pytest.mark.slow
def test_no_figure_is_skipped(tmp_path):
    """Nor a detector; of the main job, CI looks whether a figure is."""
    assert call("train.py", *LINE, f"paths.outputs={tmp_path}", figures=None) == 0
    (folder,) = run_folders(tmp_path)
    assert "is skipped" not in (folder / "log.txt").read_text()
    assert len(list(folder.rglob("*.svg"))) > 15


def test_one_command_leaves_distances_levels_and_scores(run):
    results = read_results(run)
    assert {"shift", "detection"} <= set(results["kind"])
    levels = pd.read_parquet(run / "levels.parquet")
    assert len(levels) == 5 * 40 + 35
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["distance"]["by"] == "tiny"
    page = (run / "report.html").read_text()
    assert page.index("Recommended detector") < page.index("<table")
    assert page.index("<h2>Verdict") < page.index("<h3>Semantic against covariate shift")
    assert "task=predict" in page
    assert "<h2>Unusual ones among your ID images" in page
    assert len(pd.read_csv(run / "id_images.csv")) == 198


def test_the_numbers_of_a_level_are_those_of_its_images(run):
    """From scores and levels by hand; the known levels of the grid stay beside them."""
    results = of_kind(read_results(run), "detection")
    scores = pd.read_parquet(run / "scores.parquet")
    keys = ["dataset", "index"]
    levels = pd.read_parquet(run / "levels.parquet")[
        [*keys, "semantic_level", "covariate_level"]
    ].rename(columns={"semantic_level": "s", "covariate_level": "c"})
    pool = scores.merge(levels, on=keys)
    test = scores[scores["dataset"] == "test"]
    cells = results[(results["dataset"] == "all_ood") & (results["metric"] == "auroc")]
    cells = cells.dropna(subset=["semantic_level", "covariate_level", "value"])
    assert len(cells) > 3
    for row in cells.to_dict("records"):
        part = pool[(pool["s"] == row["semantic_level"]) & (pool["c"] == row["covariate_level"])]
        assert len(part) == row["n_ood"]
        expected = auroc(test[row["detector"]], part[row["detector"]])
        assert row["value"] == pytest.approx(expected, abs=1e-12)
    assert "grid" in set(results.dropna(subset=["semantic_level"])["dataset"])


def test_the_verdict_has_the_numbers_of_the_tables(run):
    results = read_results(run)
    rows, tables = of_kind(results, "verdict"), of_kind(results, "detection")
    verdict = Verdict(results, RunRecord.read(run))
    assert verdict.recommended in verdict.best
    for row in rows[rows["metric"].isin(["auroc", "fpr95"])].to_dict("records"):
        same = tables[(tables["metric"] == row["metric"]) & (tables["dataset"] == row["dataset"])]
        same = same[(same["detector"] == row["detector"]) & same["semantic_level"].isna()]
        (of,) = same[same["covariate_level"].isna()].to_dict("records")
        ends = ("value", "ci_low", "ci_high")  # of few images, an end is missing
        same_ends = pytest.approx([row[k] for k in ends], rel=0, abs=0, nan_ok=True)
        assert [of[k] for k in ends] == same_ends
    means = tables[tables["metric"] == "mean_auroc"].set_index("detector")["value"]
    for row in rows[rows["metric"] == "mean_auroc"].to_dict("records"):
        assert means[row["detector"]] == row["value"]
    assert "grid" not in set(rows["dataset"])  # by level only
    best = pd.read_parquet(run / "significance_best.parquet").query(
        "metric == 'mean_auroc' and best"
    )
    assert set(best["detector"]) == set(verdict.best)  # one rule for stars and verdict


def test_the_terminal_ends_with_the_verdict(run, capsys, monkeypatch):
    """Shown again: one table, at most 25 lines with the sentences, and the next command."""
    monkeypatch.setenv("COLUMNS", "120")
    line = (run / "log.txt").parent
    show_run(line, {})
    out = capsys.readouterr().out.rstrip().splitlines()
    (start,) = (n for n, text in enumerate(out) if text.startswith("Shift and detection"))
    assert len(out) - start <= 25
    assert "task=predict" in out[-1]
    assert "detector=" in out[-1]
    assert "AUROC in %" not in "\n".join(out)


def test_the_readme_shows_the_terminal_as_it_is(run, capsys, monkeypatch):
    """All lines of its example that name no detector and no dataset, but for their numbers."""
    monkeypatch.setenv("COLUMNS", "100")
    show_run(run, {})

    def words(text):
        return " ".join(re.sub(r"[\d.,:]+", "#", text).split())

    shown = words(capsys.readouterr().out)
    block = (ROOT / "README.md").read_text().split("it flags 15 of 100 of your own.\n")[1]
    names = "pnml|_|─|container|general|^images|^them|The page|Results"
    fixed = [x for x in block.split("```")[0].splitlines() if x and not re.search(names, x)]
    assert len(fixed) == 7
    for line in fixed:
        assert words(line) in shown


def test_every_set_is_read_off_both_rulers(run):
    results = of_kind(read_results(run), "shift").set_index(["metric", "dataset"])
    degrees = pd.read_parquet(run / "shift_scores.parquet")
    marks = pd.read_parquet(run / "ruler.parquet")
    medians = marks.groupby(["metric", "mark"])["distance"].median()
    semantic, covariate = (degrees.groupby("dataset")[axis].median() for axis in AXES)
    unit = medians["held_out_class_units", 1] - semantic["test"]
    ladder = [covariate["test"], *np.maximum.accumulate(medians["corruption_severity"])]
    facts = json.loads((run / "manifest.json").read_text())["distance"]["rulers"]
    assert [ruler["reason"] for ruler in facts] == [None, None]
    assert facts[1]["marks"] == pytest.approx(ladder)
    for name in semantic.index.drop("test"):
        row = results.loc["held_out_class_units", name]
        assert row["value"] == pytest.approx((semantic[name] - semantic["test"]) / unit)
        assert row["ci_low"] < row["value"] < row["ci_high"]
        found = results.loc["corruption_severity", name]["value"]
        if found > 5:
            assert found == pytest.approx(5 * covariate[name] / ladder[-1])
        else:
            assert found == pytest.approx(np.interp(covariate[name], ladder, range(6)))
    own = results.loc["corruption_severity"]["value"]
    assert own.idxmin() == "transferred_container"  # ordinary pictures of other things
    assert (own.drop("transferred_container") > 5).sum() >= 4


def test_own_photos_are_measured_in_the_features_of_the_network(tmp_path, capsys):
    line = (
        *write_photos(tmp_path, (56, 48), "jpg"),
        *(*FAST[:-1], "detector=[msp,knn,mds,gram]", f"paths.outputs={tmp_path}/outputs"),
        "task.k=3",
    )
    assert call("train.py", *line, "task.distance=clip") == 1
    error = capsys.readouterr().err
    assert "task.distance=clip" in error
    assert "clip=" in error
    assert call("train.py", *line, "detector.knn.k=3") == 0
    run = run_folders(tmp_path / "outputs")[-1]
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["distance"]["unsplit"]
    remarks = " ".join(manifest["verdict"]["remarks"])
    assert "to which covariate shift adds" in remarks
    assert "split off" in remarks
    axes = [ruler["axis"] for ruler in manifest["distance"]["rulers"]]
    assert axes == ["distance", "covariate"]
    for ruler in manifest["distance"]["rulers"]:
        metric = "ratio_to_id" if ruler["reason"] else ruler["metric"]
        rows = of_kind(read_results(run), "shift").query(f"metric == '{metric}'")
        assert set(rows["dataset"]) == {"noise"}
    assert "was trained on" in manifest["distance"]["rulers"][0]["note"]
    degrees = pd.read_parquet(run / "shift_scores.parquet")
    # KNN is the Euclidean distance of unit vectors: twice the cosine distance is its square.
    scores = pd.read_parquet(run / "scores.parquet")
    both = degrees.merge(scores[["dataset", "index", "knn"]], on=["dataset", "index"])
    np.testing.assert_allclose(2 * both["distance"], both["knn"] ** 2, atol=1e-5)
    page = (run / "report.html").read_text()
    assert "to which covariate shift adds" in page
    assert "What differs" in page
    causes = of_kind(read_results(run), "cause").query("metric == 'auroc'")
    assert set(causes["dataset"]) == {"noise"}
    assert {"brightness", "noise", "sharpness"} <= set(causes["statistic"])
    strength = (causes["value"] - 0.5).abs()
    assert strength.is_monotonic_decreasing
    said = (run / "log.txt").read_text()  # one pass, though gram needs columns of it
    assert len(re.findall(r"'test': \d+ images passed", said)) == 1
    assert len(re.findall(r"'train': \d+ images passed", said)) == 1
    assert set(manifest["seconds"]) == {"train", "extract", "measure", "score", "report"}
    # Killed before the results were there: what was done is not done again.
    before = {name: (run / name).read_bytes() for name in ("scores.parquet", "results.csv")}
    for name in ("DONE", "manifest.json", "results.parquet", "results.csv", "scores.parquet"):
        (run / name).unlink()
    features = (tmp_path / "outputs" / "features").rglob("*.safetensors")
    kept = [run / "shift_scores.parquet", *run.rglob("*.ckpt"), *features]
    assert len(kept) > 2
    times = [file.stat().st_mtime_ns for file in kept]
    assert call("train.py", *line, "detector.knn.k=3") == 0
    assert [file.stat().st_mtime_ns for file in kept] == times
    assert {name: (run / name).read_bytes() for name in before} == before


SCENES = (
    *(
        "experiment=shift_report",
        "data=scenes",
        "model=clip",
        "clip=scenes",
        "task.distance=features",
    ),
    *("data.train=45", "data.val=15", "data.test=30", "data.per_shift_set=20", "data.per_cell=0"),
    *("metrics.n_bootstrap=30", "logger=none", "detector=[msp,knn]", "detector.knn.k=5"),
    *("task.k=5", "task.report=false"),
)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """The command line, and the folder of its outputs."""
    outputs = tmp_path_factory.mktemp("scenes")
    return (*SCENES, f"paths.outputs={outputs}"), outputs


@pytest.mark.slow
def test_a_vision_language_model_stands_beside_the_detectors(scenes):
    line, outputs = scenes
    assert call("eval.py", *line, "lvlm=tiny", "lvlm.answer=first_token") == 0
    run = run_folders(outputs)[-1]
    scores = pd.read_parquet(run / "scores.parquet")
    answers = {each.question_id: each for each in read_answers(run / "answers.jsonl")}
    ids = scores["dataset"] + "/" + scores["index"].astype(str)
    chance = np.array([answers[name].p_yes for name in ids])
    np.testing.assert_allclose(scores["tiny"], 1 - chance)
    assert "kitchen" in answers["test/0"].prompt
    results = read_results(run)
    found = of_kind(results, "detection").query("detector == 'tiny' and metric == 'auroc'")
    test = scores[scores["dataset"] == "test"]
    for row in found.to_dict("records"):
        part = scores[scores["dataset"] == row["dataset"]]
        assert row["value"] == pytest.approx(auroc(test["tiny"], part["tiny"]), abs=1e-12)
        assert row["ci_low"] <= row["value"] <= row["ci_high"]
    assert set(found["dataset"]) == {"out_of_place", "unfamiliar", "restyled"}
    said = of_kind(results, "vlm_answers").set_index("dataset")
    no = np.mean([answers[name].response == "No" for name in ids[test.index]])
    assert said.loc["test", "value"] == pytest.approx(no)
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["detectors"]["tiny"]["input_type"] == "vision-language model"
    assert any("tiny answers that" in sentence for sentence in manifest["verdict"]["remarks"])
    (run / "DONE").unlink()  # killed at its end
    written = (outputs / "answers").glob("tiny-*.jsonl")
    paid = {file: file.read_bytes() for file in written}
    assert call("eval.py", *line, "lvlm=tiny", "lvlm.answer=first_token") == 0
    assert paid
    assert all(file.read_bytes() == content for file, content in paid.items())


def test_a_mere_yes_or_no_gives_its_balanced_accuracy(scenes):
    line, outputs = scenes
    assert call("eval.py", *line, "lvlm=oracle", "lvlm.accuracy=0.8") == 0
    run = run_folders(outputs)[-1]
    results = read_results(run)
    said = of_kind(results, "vlm_answers").set_index("dataset")["value"]
    rows = of_kind(results, "detection").query("detector == 'oracle'")
    found = rows[rows["metric"] == "auroc"].set_index("dataset")["value"]
    for name, value in found.items():
        assert value == pytest.approx((said[name] + 1 - said["test"]) / 2, abs=1e-12)
    assert 0.6 < found.mean() < 0.95
    assert set(rows["metric"]) == {"auroc", "mean_auroc"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (("lvlm=tiny", "data=vessels"), "data=scenes"),
        (("lvlm=transformers", "lvlm.path=/nowhere"), "/nowhere is not a directory"),
        (("lvlm=openai", "lvlm.model=m", "lvlm.base_url=http://127.0.0.1:9/v1"), "127.0.0.1:9"),
        (("lvlm=tiny", "task.question=Why?"), "{classes}"),
    ],
)
def test_what_cannot_be_asked_is_told_before_any_work(scenes, capsys, changes, words):
    line, _ = scenes
    kept = [each for each in line if each.split("=")[0] not in {c.split("=")[0] for c in changes}]
    assert call("eval.py", *kept, *changes) == 1
    said = capsys.readouterr()
    assert words in said.err
    assert "features of" not in said.out + said.err


@pytest.mark.slow
def test_without_synthetic_ood_sets_there_is_nothing_to_measure(tmp_path, capsys):
    data, train, _, workers = write_photos(tmp_path, (40, 40), "jpg")
    line = (data, train, workers, f"paths.outputs={tmp_path}/outputs", "task.report=false")
    assert call("train.py", *line, "synthetic_ood=none", *FAST) == 0
    run = run_folders(tmp_path / "outputs")[-1]
    assert set(read_results(run)["kind"]) == {"detection"}
    assert "synthetic_ood=corruptions" in capsys.readouterr().out


@pytest.mark.slow
def test_models_that_train_in_their_own_way_bring_their_own_task():
    register_resolvers()
    tasks = {"laid": "TrainLaid", "vlm": "TuneVlm"}
    for model, task in tasks.items():
        assert composed("train", [f"model={model}"]).task._target_.endswith(f".{task}")
    assert composed("train", ["task=score"]).task._target_.endswith(".Score")
    assert composed("eval", []).task._target_.endswith(".Score")
