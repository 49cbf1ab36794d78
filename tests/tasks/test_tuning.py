"""Settings are chosen away from the evaluated images, and stand beside the defaults."""

import json
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from cli import call, run_folders
from PIL import Image
from sklearn.metrics import roc_auc_score

from ood_lab.common.errors import UserError
from ood_lab.data.datamodules.folder import FolderDataModule
from ood_lab.detectors import KNN, ODIN, Detector, ReAct, ViM
from ood_lab.evaluation.detector_tuning import Tuning, synthetic_outliers, with_tuned
from ood_lab.features.bank import FeatureBank


def bank(features, labels) -> FeatureBank:
    weight = torch.eye(3, 8)
    logits = features @ weight.T
    return FeatureBank(features, logits, labels, torch.arange(len(labels)), weight, torch.zeros(3))


@pytest.fixture(scope="module")
def banks():
    generator = torch.Generator().manual_seed(0)

    def identity(n):
        labels = torch.arange(n) % 3
        noise = 0.4 * torch.randn(n, 8, generator=generator)
        return bank((2 * torch.eye(3, 8)[labels] + noise).relu(), labels)

    far = bank(torch.rand(80, 8, generator=generator), torch.full((80,), -1))
    # There is no `test`: a selection that reads it fails.
    return {"train": identity(120), "val": identity(60), "far": far}


def tuning(mode="val_ood", sets=("far",), defaults=None, **grids):
    def build(name, **settings):
        targets = {"knn": KNN, "vim": ViM, "react": ReAct, "dial": Dial}
        return targets[name](**(defaults or {}) | settings)

    return Tuning(mode, list(sets), grids, build)


def select(tuner, banks, **detectors):
    return tuner.select(detectors, banks, seed=0)


def test_the_best_of_the_grid_is_chosen(banks):
    grid = [1, 5, 20, 60]
    selection = select(tuning(knn={"k": grid}), banks, knn=KNN(k=20))
    record = selection.record["detectors"]["knn"]
    truth = []
    for k in grid:
        detector = KNN(k=k).fit(banks["train"])
        scores = torch.cat([detector.score(banks[s]) for s in ("val", "far")])
        truth.append(roc_auc_score(np.repeat([0, 1], [60, 80]), scores))
    np.testing.assert_allclose([c["auroc"] for c in record["candidates"]], truth)
    assert record["chosen"]["k"] == grid[int(np.argmax(truth))]
    assert selection.detectors["knn_tuned"].k == record["chosen"]["k"]
    assert not selection.detectors["knn_tuned"].fitted


class Dial(Detector):
    """What tells the sets apart, drowned in noise the further ``turn`` is from 3."""

    def __init__(self, turn: float = 0):
        super().__init__()
        self.turn = turn

    def score(self, bank):
        noise = torch.randn(len(bank), generator=torch.Generator().manual_seed(len(bank)))
        return (bank.labels < 0) + (0.3 + abs(self.turn - 3)) * noise

    def describe(self):
        return {"turn": self.turn}


@pytest.mark.parametrize(
    ("grid", "warns"), [([1, 2, 3], 1), ([5, 4, 3], 1), ([5, 3, 1], 0), ([3], 0)]
)
def test_an_optimum_at_the_edge_warns(banks, grid, warns):
    selection = select(tuning(dial={"turn": grid}), banks, dial=Dial())
    assert selection.record["detectors"]["dial"]["chosen"]["turn"] == 3
    assert len(selection.warnings) == warns
    assert all("turn=3 " in w and "tuning.grids.dial.turn" in w for w in selection.warnings)


def test_ties_go_to_the_default_and_are_no_edge(banks):
    far = bank(torch.full((80, 8), -3.0), torch.full((80,), -1))  # any k tells it apart
    for default in (20, 5, 1):
        tuner = tuning(defaults={"k": default}, knn={"k": [1, 5, 20]})
        selection = select(tuner, banks | {"far": far}, knn=KNN(k=default))
        chosen = selection.record["detectors"]["knn"]["chosen"]
        assert (chosen["k"], chosen["auroc"]) == (default, 1)
        assert not selection.warnings


def test_points_that_cannot_work_or_are_the_same_are_left_out(banks):
    tuner = tuning(knn={"k": [5, 500]}, vim={"dim": [2, 4, 8, 500]})
    record = select(tuner, banks, knn=KNN(k=5), vim=ViM(dim=2)).record["detectors"]
    assert [c["k"] for c in record["knn"]["candidates"]] == [5]
    assert "cached train images" in record["knn"]["refused"][0]["reason"]
    assert [c["dim"] for c in record["vim"]["candidates"]] == [2, 4]  # from 8 on, D // 2


def test_nothing_of_the_grid_works(banks):
    selection = select(tuning(knn={"k": [500, 600]}), banks, knn=KNN(k=5))
    assert not selection.detectors
    assert "no point of its grid works" in selection.warnings[0]


def test_a_detector_fitted_on_val_is_judged_on_the_other_half(banks, monkeypatch):
    seen = {"fit": set(), "score": set()}
    fit, score = ReAct.fit, ReAct.score

    def spy(kind, method, self, given):
        if len(given) < 60:  # parts of val
            seen[kind] |= set(given.index.tolist())
        return method(self, given)

    monkeypatch.setattr(ReAct, "fit", lambda s, b: spy("fit", fit, s, b))
    monkeypatch.setattr(ReAct, "score", lambda s, b: spy("score", score, s, b))
    select(tuning(react={"percentile": [80, 90, 99]}), banks, react=ReAct())
    assert not seen["fit"] & seen["score"]
    assert seen["fit"] | seen["score"] == set(range(60))


def test_id_only_reads_no_ood_set(banks):
    without = {name: banks[name] for name in ("train", "val")}
    selection = select(tuning("id_only", (), knn={"k": [1, 5, 20]}), without, knn=KNN(k=5))
    best = selection.record["detectors"]["knn"]["chosen"]
    assert set(best["auroc_by_set"]) == {"shuffled", "mixed"}
    assert best["auroc"] == pytest.approx(np.mean(list(best["auroc_by_set"].values())))


def test_synthetic_outliers(banks):
    val = banks["val"]
    made = synthetic_outliers(val, seed=0)
    shuffled, mixed = made["shuffled"], made["mixed"]
    torch.testing.assert_close(shuffled.features.sort(dim=0)[0], val.features.sort(dim=0)[0])
    assert not torch.equal(shuffled.features, val.features)
    for outliers in (shuffled, mixed):
        torch.testing.assert_close(
            outliers.logits, outliers.features @ val.head_weight.T + val.head_bias
        )
        assert (outliers.features >= 0).all()
        assert (outliers.labels == -1).all()
    pairs = (val.features[:, None] + val.features[None]) / 2
    i, j = torch.nonzero(val.predictions[:, None] != val.predictions[None], as_tuple=True)
    nearest = torch.cdist(mixed.features, pairs[i, j]).amin(dim=1)
    assert nearest.max() < 1e-3
    again = synthetic_outliers(val, seed=0)["shuffled"].features
    assert torch.equal(shuffled.features, again)
    one_class = replace(val, logits=torch.zeros_like(val.logits))
    assert set(synthetic_outliers(one_class, seed=0)) == {"shuffled"}


def test_beside_keeps_pairs_together():
    first, second, tuned = KNN(k=1), ViM(), KNN(k=2)
    assert list(with_tuned({"knn": first, "vim": second}, {"knn_tuned": tuned})) == [
        "knn",
        "knn_tuned",
        "vim",
    ]


# ---- what is checked before anything is extracted


@pytest.fixture
def folders(tmp_path):
    generator = np.random.default_rng(0)

    def write(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 255, (8, 8, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(place)

    for split in ("train", "val", "test"):
        for c in ("a", "b"):
            for i in range(3):
                write(tmp_path / split / c / f"{i}.png")
    for ood in ("near", "far"):
        for i in range(3):
            write(tmp_path / ood / f"{i}.png")
    return tmp_path


def opened(folders):
    data = FolderDataModule(
        id={split: str(folders / split) for split in ("train", "val", "test")},
        ood={name: str(folders / name) for name in ("near", "far")},
        num_workers=0,
    )
    data.setup()
    return data


def evaluated(tuner, data, **detectors):
    return tuner.evaluated(data, data.ood_names, detectors)


def test_tuning_sets_are_not_evaluated(folders):
    assert evaluated(tuning(sets=["near"]), opened(folders)) == ["far"]
    assert evaluated(tuning("id_only", ()), opened(folders)) == ["near", "far"]
    assert evaluated(tuning("none", ()), opened(folders)) == ["near", "far"]


@pytest.mark.parametrize("into", ["train/a", "val/b", "test/a", "far"])
def test_content_of_the_tuning_set_elsewhere_is_refused(folders, into):
    copied = folders / into / "another_name.png"
    copied.write_bytes((folders / "near" / "1.png").read_bytes())
    with pytest.raises(UserError, match=r"near/1\.png = .*another_name\.png"):
        evaluated(tuning(sets=["near"]), opened(folders))


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "sets"), [("val_ood", ["near"]), ("id_only", [])])
def test_validation_images_among_the_test_images_are_refused(folders, mode, sets):
    (folders / "test/a/copy.png").write_bytes((folders / "val/a/0.png").read_bytes())
    with pytest.raises(UserError, match=r"1 image of val also in test"):
        evaluated(tuning(mode, sets), opened(folders))
    assert evaluated(tuning("none", ()), opened(folders)) == ["near", "far"]


WRONG = {
    "unknown set": (partial(tuning, sets=["nera"]), "did you mean 'near'"),
    "all sets": (partial(tuning, sets=["near", "far"]), "leaves no OOD set"),
    "no set": (partial(tuning, sets=[]), "tuning.sets"),
    "sets without use": (partial(tuning, "id_only", ["near"]), "tuning.sets"),
    "unknown mode": (partial(tuning, "val-ood", ["near"]), "did you mean 'val_ood'"),
    "unknown detector": (partial(tuning, sets=["near"], knnn={"k": [1]}), "did you mean 'knn'"),
    "in the pass": (
        partial(tuning, sets=["near"], odin={"epsilon": [0, 1]}),
        "during feature extraction",
    ),
    "not a list": (partial(tuning, sets=["near"], knn={"k": 5}), "tuning.grids.knn.k"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_settings_are_named(folders, case):
    make, named = WRONG[case]
    with pytest.raises(UserError, match=named.replace(".", r"\.")):
        evaluated(make(), opened(folders), knn=KNN(), odin=ODIN())


# ---- the whole way

SMOKE = ("experiment=smoke", "data.train=66", "data.test=44", "data.per_shift_set=20")
SMOKE += ("data.per_cell=0", "report_by=sets")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    outputs = tmp_path_factory.mktemp("outputs")
    arguments = (*SMOKE, "logger=none", "task.report=false", "detector=[msp]")
    assert call("train.py", "task=score", *arguments, f"paths.outputs={outputs}") == 0
    return SimpleNamespace(outputs=outputs, folder=run_folders(outputs)[0])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["val_ood", "id_only"])
def test_tuned_and_default_stand_side_by_side(run, mode, capsys):
    sets = ["tuning.sets=[container]"] if mode == "val_ood" else []
    arguments = (f"ckpt={run.folder}", f"paths.outputs={run.outputs}", *SMOKE)
    options = ("detector=[knn,mls]", "tuning.grids.knn.k=[50,51]", "detector.knn.k=20")
    more = ("logger=none", f"name={mode}", "task.report=false", f"tuning={mode}", *sets)
    assert call("eval.py", *arguments, *options, *more) == 0
    folder = run_folders(run.outputs / mode)[-1]
    scores = pd.read_parquet(folder / "scores.parquet")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert ("container" in set(scores.dataset)) == (mode == "id_only")
    assert list(manifest["detectors"]) == ["knn", "knn_tuned", "mls"]
    assert manifest["detectors"]["knn"]["k"] == 20
    assert manifest["detectors"]["knn_tuned"]["k"] in (50, 51)
    assert not np.allclose(scores.knn, scores.knn_tuned)
    results = pd.read_parquet(folder / "results.parquet")
    assert {"knn", "knn_tuned", "mls"} <= set(results.detector)
    record = manifest["tuning"]
    assert record["mode"] == mode
    assert len(record["detectors"]["knn"]["candidates"]) == 2
    assert record["detectors"]["knn"]["default"]["k"] == 20
    (edge,) = [w for w in manifest["warnings"] if "edge" in w]
    assert "knn_tuned" in edge
    assert "edge of its grid" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_val_ood_asks_for_its_sets(run, capsys):
    arguments = (f"ckpt={run.folder}", f"paths.outputs={run.outputs}", "logger=none")
    assert call("eval.py", *arguments, "tuning=val_ood") != 0
    assert "tuning.sets" in capsys.readouterr().err
