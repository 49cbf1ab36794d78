"""Multi-label heads, through eval.py: lists of classes in a table, and one sigmoid per class."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from cli import call, run_folders
from PIL import Image
from sklearn.metrics import average_precision_score
from torch import nn

import ood_lab
from ood_lab.common.errors import UserError
from ood_lab.metrics import mean_average_precision

CLASSES = ("blue", "green", "red")  # in order, as a table has them
SMALL = ("metrics.n_bootstrap=20", "logger=none", "data.num_workers=0", "trainer=cpu")
PLAIN = ("model.backbone.input_size=16", "model.backbone.mean=0.5", "model.backbone.std=0.5")
#: Sets in which each image has one class.
ONE = (
    "data.multilabel=false",
    *(f"data.id.{split}=DATA/one.csv" for split in ("train", "val", "test")),
)
SERVED = {"gmm", "joint_energy", "knn", "mds", "mls", "residual", "sum_prob"}


class Colours(nn.Module):
    """Sees how much there is of each colour: logits of three classes, or their sigmoid."""

    def __init__(self, sigmoid: bool = False) -> None:
        super().__init__()
        self.mean = nn.Conv2d(3, 6, 1)
        self.fc = nn.Linear(6, 3)
        self.last = nn.Sigmoid() if sigmoid else nn.Identity()
        with torch.no_grad():
            self.mean.bias.fill_(0.0)
            self.mean.weight.copy_(torch.eye(3).flip(0).repeat(2, 1)[..., None, None] * 2 + 0.1)
            self.mean.weight[3:] += torch.rand(3, 3, 1, 1, generator=torch.manual_seed(0))
            self.fc.weight.copy_(torch.cat([4 * torch.eye(3), 0.1 * torch.ones(3, 3)], dim=1))
            self.fc.bias.copy_(torch.tensor([0.1, -0.2, 0.0]))

    def forward(self, image):
        return self.last(self.fc(self.mean(image).mean((2, 3))))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """180 images with any of three colours, in a table; 20 grey ones of another brightness."""
    root, rng = tmp_path_factory.mktemp("colours"), np.random.default_rng(0)
    (root / "ood").mkdir()
    rows = []
    for number in range(180):
        there = rng.random(3) < 0.5
        pixels = rng.integers(0, 140, (16, 16, 3)) + 9 * there[::-1]
        Image.fromarray(pixels.astype(np.uint8)).save(root / f"{number}.png")
        names = [name for name, is_there in zip(CLASSES, there, strict=True) if is_there]
        text = json.dumps(names) if number % 2 or not names else ";".join(names)
        rows.append((f"{number}.png", text))
    for number in range(20):
        pixels = rng.integers(0, 60, (16, 16, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(root / "ood" / f"{number}.png")
    table = pd.DataFrame(rows, columns=["path", "label"])
    for split, part in (("train", table[:60]), ("val", table[60:75]), ("test", table[75:])):
        part.to_csv(root / f"{split}.csv", index=False)
    table.assign(label=[CLASSES[row % 3] for row in range(180)]).to_csv(
        root / "one.csv", index=False
    )
    return root


def line(root, outputs, *more):
    sets = [f"data.id.{split}={root}/{split}.csv" for split in ("train", "val", "test")]
    model = ("model=module", "model.net._target_=test_multilabel.Colours", "model.pretrained=true")
    given = ("data=folder", *sets, f"data.ood.dark={root}/ood", *model, *PLAIN, *SMALL)
    places = (f"paths.outputs={outputs}", f"paths.features={outputs}/features")
    return (*given, *places, *more)


def outputs_of(root, scores):
    """Logits of the images of a table of scores, by plain PyTorch."""
    images = [np.asarray(Image.open(path).convert("RGB")) for path in scores["path"]]
    image = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 255
    with torch.no_grad():
        return Colours()((image - 0.5) / 0.5).double()


@pytest.mark.slow
@pytest.mark.parametrize("sigmoid", [False, True])
def test_a_multi_label_network_is_scored(data, tmp_path, capsys, sigmoid):
    multi = ("model.multilabel=true", f"task.report={str(not sigmoid).lower()}")
    multi += ("+model.net.sigmoid=true",) if sigmoid else ()
    chosen = f"detector=[{','.join(sorted(SERVED))},msp,ebo,vim,she,rmds]"
    assert call("eval.py", *line(data, tmp_path, *multi, chosen)) == 0
    (folder,) = run_folders(tmp_path)
    scores = pd.read_parquet(folder / "scores.parquet")
    assert set(scores.loc[scores["dataset"] == "test", "label"]) == {-2}
    z = outputs_of(data, scores)
    loose = {"rtol": 1e-3, "atol": 1e-3} if sigmoid else {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(scores["joint_energy"], -torch.log1p(z.exp()).sum(1), **loose)
    np.testing.assert_allclose(scores["sum_prob"], -(1 / (1 + (-z).exp())).sum(1), **loose)
    np.testing.assert_allclose(scores["mls"], -z.max(1).values, **loose)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert set(manifest["detectors"]) == SERVED
    for name in ("msp", "ebo", "she", "rmds"):
        assert "one class per image" in manifest["refused"][name]
    assert "vim" in manifest["refused"]
    results = pd.read_parquet(folder / "results.parquet").set_index("metric")
    assert "id_accuracy" not in results.index
    test = pd.read_csv(data / "test.csv")
    there = np.array([[name in text for name in CLASSES] for text in test["label"]])
    p = z[(scores["dataset"] == "test").to_numpy(copy=True)].sigmoid().numpy()
    expected = average_precision_score(there, p, average="macro")
    found = results.loc["id_map"]
    assert found["value"] == pytest.approx(expected, abs=1e-6)
    assert found["ci_low"] <= expected <= found["ci_high"]
    assert f"ID mAP {100 * expected:.1f}%" in " ".join(capsys.readouterr().out.split())
    again = pd.read_csv(folder / "splits" / "test.csv")
    assert json.loads(again["label"].iloc[0]) == [
        name for name, is_there in zip(CLASSES, there[0], strict=True) if is_there
    ]


def test_without_features_kept_there_is_no_map(data, tmp_path, capsys):
    more = ("model.multilabel=true", "detector=[joint_energy,mds]", "task.keep_features=false")
    assert call("eval.py", *line(data, tmp_path, "task.report=false", *more)) == 0
    (folder,) = run_folders(tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert list(manifest["detectors"]) == ["joint_energy", "mds"]  # few train rows, kept
    assert not manifest["refused"]
    assert "ID mAP needs the logits of ID test" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_images_are_predicted(data, tmp_path):
    more = ("model.multilabel=true", "detector=[joint_energy]", "task=predict", "task.alpha=0.1")
    assert call("eval.py", *line(data, tmp_path, *more, f"task.images={data}/ood")) == 0
    (folder,) = run_folders(tmp_path)
    assert len(pd.read_csv(folder / "predictions.csv")) == 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "more", "says"),
    [
        ("eval.py", ("data.multilabel=true",), "set model.multilabel=true"),
        ("eval.py", ("model.multilabel=true", *ONE), "lists of classes"),
        ("eval.py", ("model.multilabel=true", "data.shots=2"), "one class per image"),
        ("train.py", ("model.multilabel=true",), "train.py trains one class per image"),
    ],
)
def test_what_is_not_multi_label_says_so(data, tmp_path, capsys, script, more, says):
    more = [argument.replace("DATA", str(data)) for argument in more]
    assert call(script, *line(data, tmp_path, "detector=[knn]", *more)) != 0
    shown = capsys.readouterr()
    assert says in " ".join((shown.out + shown.err).split())


def test_classes_that_train_does_not_have(data, tmp_path, capsys):
    (data / "odd.csv").write_text("path,label\n1.png,blue;purple\n")
    more = (f"data.id.test={data}/odd.csv", "model.multilabel=true", "detector=[knn]")
    assert call("eval.py", *line(data, tmp_path, *more)) != 0
    assert "has class 'purple'" in " ".join(capsys.readouterr().err.split())


def test_mean_average_precision_is_that_of_scikit_learn():
    rng = np.random.default_rng(1)
    scores = rng.integers(0, 6, (50, 4)) / 5.0  # with ties
    targets = rng.random((50, 4)) < 0.3
    counts = rng.integers(0, 3, (2, 50))
    for weights in (None, *counts):
        expected = average_precision_score(targets, scores, sample_weight=weights)
        given = None if weights is None else weights[None]
        assert mean_average_precision(scores, targets, given)[0] == pytest.approx(expected)
    targets[:, 1] = False  # a class without an image
    kept = [0, 2, 3]
    expected = average_precision_score(targets[:, kept], scores[:, kept])
    assert mean_average_precision(scores, targets)[0] == pytest.approx(expected)


def test_arrays_of_a_multi_label_head():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 5, generator=generator)
    head = nn.Linear(5, 3)
    targets = (head(x) > 0).int()
    train, test = (
        ood_lab.features_from_arrays(x[rows], targets[rows], head=head)
        for rows in (slice(100), slice(100, 200))
    )
    far = ood_lab.features_from_arrays(5 + x[:30], head=head)
    found = ood_lab.evaluate(
        train, test, {"far": far}, detectors=["joint_energy", "mds", "msp"], n_bootstrap=10
    )
    assert set(found.detectors) == {"joint_energy", "mds"}
    assert "one class per image" in found.skipped["msp"]
    assert found.results.set_index("metric").loc["id_map", "value"] == 1
    assert any("multi-label" in remark for remark in found.verdict.remarks)
    with pytest.raises(UserError, match="should be 0 or 1"):
        ood_lab.features_from_arrays(x, 2 * targets, head=head)
