"""`task=shift_scores` through the entry point: W&B, and a CLIP that knows too little."""

import json

import numpy as np
import pandas as pd
import pytest
from cli import call, run_folders
from PIL import Image
from scripted_answers import answer_of
from wandb_offline import read_run

from ood_lab.report.rendering.summary import read_summary
from ood_lab.schema.results import read_results

SMALL = ("trainer.accelerator=cpu", "task.report=false")


@pytest.mark.slow
def test_wandb_shows_the_shift_of_every_set(tmp_path):
    few = ("data=vessels", "data.train=60", "data.test=20", "data.per_shift_set=12")
    arguments = ("task=shift_scores", *few, "data.per_cell=0", f"paths.outputs={tmp_path}")
    assert call("eval.py", *arguments, "trainer.accelerator=cpu", figures=["shift_scatter"]) == 0
    (folder,) = run_folders(tmp_path)
    assert folder.parents[1].name == "vessels-clip-tiny"  # not after the model, which is not used
    summary = read_results(folder)
    shown = read_run(folder)["summary"]
    for row in summary[summary["metric"] == "mean"].itertuples():
        assert shown[f"shift/{row.axis}/{row.dataset}"] == pytest.approx(row.value)
    for kind, name in (
        ("html", "shift"),
        ("images/figures", "shift_scatter"),
        ("table", "results"),
    ):
        assert list(folder.glob(f"wandb/offline-run-*/files/media/{kind}/{name}*")), name


def test_the_shipped_clip_says_what_it_does_not_know(tmp_path, capsys):
    noise = np.random.default_rng(0)
    for split, n in (("train", 12), ("test", 4), ("ood", 4)):
        (tmp_path / split / "a").mkdir(parents=True)
        for i in range(n):
            pixels = noise.integers(0, 256, (32, 32, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / split / "a" / f"{i}.png")
    folders = [f"data.id.{split}={tmp_path}/{split}" for split in ("train", "test")]
    data = ("data=folder", *folders, f"data.ood.noise={tmp_path}/ood", "logger=none")
    data += ("data.num_workers=0",)
    places = f"paths.outputs={tmp_path}/outputs"
    assert call("eval.py", "task=shift_scores", *data, *SMALL, places) == 0
    said = " ".join(capsys.readouterr().out.split())
    doubt = "knows only images and captions of the builtin vessels"
    assert doubt in said
    (folder,) = run_folders(tmp_path / "outputs")
    (kept,) = json.loads((folder / "manifest.json").read_text())["warnings"]
    assert doubt in kept
    assert doubt in (folder / "log.txt").read_text().replace("\n", " ")
    (first, *_) = json.loads((folder / "summary.json").read_text())["shift"]
    assert first["text"].startswith("The shift of the sets is not known: the CLIP 'tiny' knows")


def test_the_answer_comes_first_and_holds_the_numbers_of_the_results(tmp_path):
    few = ("data=vessels", "data.train=60", "data.test=20", "data.per_shift_set=12")
    more = ("data.per_cell=2", "metrics.min_count=2", "metrics.n_bootstrap=50", "logger=none")
    place = f"paths.outputs={tmp_path}"
    assert call("eval.py", "task=shift_levels", *few, *more, "trainer.accelerator=cpu", place) == 0
    (folder,) = run_folders(tmp_path)
    *_, largest, agreement, cells = answer_of(folder, "shift")
    results = pd.read_csv(folder / "results.csv")
    assert set(results["encoder"]) == {"tiny"}
    assert results["model"].isna().all()  # no classifier is measured
    (units,) = (
        b for b in read_summary(folder)["shift"] if b.kind == "table" and "Shift and" in b.caption
    )
    values = results[results["metric"] == "held_out_class_units"].set_index("dataset")["value"]
    shown = {row[0].text: row[1].sort for row in units.rows}
    assert shown == {name: pytest.approx(value) for name, value in values.items()}
    assert list(shown.values()) == sorted(shown.values())
    results = results[results["metric"] == "mean"]
    for axis, words in (("semantic", "in semantic shift"), ("covariate", "in covariate shift")):
        means = results[results["axis"] == axis].set_index("dataset")["value"]
        first = means.drop("test").idxmax()
        numbers = f"({means[first]:.2f}; ID test: {means['test']:.2f})"
        assert f"for {first} {words} {numbers}" in largest
        known = pd.read_csv(folder / "agreement.csv").query("decomposition == 'laid'")
        known = known[(known["level"] == axis) & (known["degree"] == f"D_{axis}")]
        assert f"{known['spearman'].iloc[0]:.2f} {words}" in agreement
    counts = pd.read_csv(folder / "level_counts.csv").drop(columns="covariate_level").to_numpy()
    assert f"{counts.sum()} OOD images fill {(counts >= 2).sum()} of 64 cells" in cells
