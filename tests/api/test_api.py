"""Arrays, or a network, in; the numbers of a run out."""

import copy
import dataclasses
import doctest
import logging
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import lightning as L
import numpy as np
import pandas as pd
import pytest
import timm
import torch
from sklearn.covariance import EmpiricalCovariance
from torch import nn

import ood_lab
from ood_lab.api.detector_settings import chosen_detectors
from ood_lab.common.errors import UserError
from ood_lab.detectors import KNN, MSP, ODIN
from ood_lab.metrics import auroc

PAGE = Path(__file__).parents[2] / "docs" / "how-to/python.md"


def test_the_examples_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # one of them writes a file
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    monkeypatch.setattr(logging.root.manager, "disable", logging.INFO)  # lines with the time
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, optionflags=flags)
    assert not failed
    assert tried >= 10


def test_importing_the_package_loads_no_framework():
    code = "import sys, ood_lab; print('torch' in sys.modules, 'evaluate' in ood_lab.__all__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
    with pytest.raises(AttributeError, match="evaluat"):
        _ = ood_lab.evaluat


@pytest.fixture(scope="module")
def banks():
    rng = np.random.default_rng(0)
    weight = 3 * np.eye(3, 8)
    head = (weight, None)

    def identity(n):
        labels = np.arange(n) % 3
        features = np.abs(2 * weight[labels] / 3 + 0.6 * rng.normal(size=(n, 8)))
        return ood_lab.features_from_arrays(features, labels, head=head)

    far = ood_lab.features_from_arrays(rng.random((80, 8)), head=head)
    near = ood_lab.features_from_arrays(2 * rng.random((60, 8)), head=head)
    return {"train": identity(300), "test": identity(150), "ood": {"far": far, "near": near}}


@pytest.mark.slow
def test_every_detector_of_the_bank(banks):
    outcome = ood_lab.evaluate(**banks, detectors="all", n_bootstrap=20)
    assert set(outcome.detectors) | set(outcome.skipped) == set(chosen_detectors("all", "openood"))
    # Those that work inside the network, and nothing else.
    assert set(outcome.skipped) == {n for n in outcome.skipped if "network" in outcome.skipped[n]}
    assert len(outcome.detectors) >= 25
    scores = outcome.scores.set_index("dataset")
    table = outcome.results.set_index(["detector", "dataset", "metric"])
    for name in outcome.detectors:
        assert table.value[name, "far", "auroc"] == auroc(
            scores.loc["test", name], scores.loc["far", name]
        )
    assert {"auroc", "id_accuracy"} <= set(outcome.results.metric)
    text = str(outcome)
    assert max(map(len, text.splitlines())) <= 80
    assert "AUROC" in text


def test_it_is_the_detector_on_its_bank(banks):
    outcome = ood_lab.evaluate(**banks, detectors={"mine": KNN(k=3), "msp": MSP()}, n_bootstrap=20)
    scores = outcome.scores[outcome.scores.dataset == "test"]
    own = outcome.detectors["mine"].score(banks["test"]).numpy()
    np.testing.assert_array_equal(scores["mine"], own)


def test_val_given_or_drawn(banks):
    drawn = ood_lab.evaluate(**banks, detectors=["react", "knn"], n_bootstrap=20)
    assert len(drawn.detectors["knn"].fitted["bank"]) == 270
    given = ood_lab.evaluate(**banks, val=banks["test"], detectors=["knn"], n_bootstrap=20)
    assert len(given.detectors["knn"].fitted["bank"]) == 300


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.fc = nn.Linear(6, 4)

    def forward(self, image):
        return self.fc(self.body(image).flatten(1))


def test_a_module_becomes_a_bank():
    torch.manual_seed(0)
    net = Module().train()
    images, labels = torch.rand(20, 3, 8, 8), torch.arange(20) % 4
    loader = torch.utils.data.DataLoader(list(zip(images, labels, strict=True)), batch_size=7)
    bank = ood_lab.extract_features(net, loader, detectors={"odin": ODIN()})
    assert net.training
    with torch.no_grad():
        torch.testing.assert_close(bank.logits, net(images))
        torch.testing.assert_close(net.fc(bank.features), bank.logits)
    assert bank.labels.tolist() == labels.tolist()
    same = ood_lab.extract_features(net, images, labels, head="fc")
    torch.testing.assert_close(same.features, bank.features)
    ood = {"far": ood_lab.extract_features(net, images + 1, detectors={"odin": ODIN()})}
    outcome = ood_lab.evaluate(bank, bank, ood, detectors=["odin", "msp", "gram"], n_bootstrap=10)
    assert set(outcome.detectors) == {"odin", "msp"}
    assert "extract_features" in outcome.skipped["gram"]


def test_a_network_of_timm_without_classifier_gives_its_features():
    torch.manual_seed(0)
    net = timm.create_model("tf_efficientnet_lite0").eval()
    net.reset_classifier(0)
    images = torch.rand(4, 3, 64, 64)
    bank = ood_lab.extract_features(net, images)
    with torch.no_grad():
        torch.testing.assert_close(bank.features, net(images))
    assert bank.logits.shape == (4, 0)


def test_the_shift_of_images_names_its_cause():
    torch.manual_seed(0)
    net, normal = Module(), {"mean": 0.4, "std": (0.2, 0.25, 0.3)}
    mean, std = 0.4, torch.tensor(normal["std"])[:, None, None]
    images = 0.2 + 0.6 * torch.rand(60, 1, 1, 1) * torch.rand(60, 3, 8, 8)
    train, test, dark = images[:20], images[20:40], 0.3 * images[40:]
    banks = {
        name: ood_lab.extract_features(net, (of - mean) / std, **normal)
        for name, of in {"train": train, "test": test, "dark": dark}.items()
    }
    settings = {"detectors": ["knn"], "n_bootstrap": 50}
    result = ood_lab.evaluate(banks["train"], banks["test"], {"dark": banks["dark"]}, **settings)
    causes = result.shift.causes.query("metric == 'auroc'").set_index("statistic")
    luma = [
        of @ torch.tensor([0.299, 0.587, 0.114]) for of in (test.mean((2, 3)), dark.mean((2, 3)))
    ]
    assert causes.loc["brightness", "median_id"] == pytest.approx(
        float(np.median(luma[0])), rel=1e-4
    )
    assert causes.loc["brightness", "median"] == pytest.approx(float(np.median(luma[1])), rel=1e-4)
    assert causes.loc["brightness", "value"] < 0.1
    assert any("dark is darker" in sentence for sentence in result.verdict.sentences)
    assert len(result.shift.datasets)
    raw = {
        n: ood_lab.extract_features(net, (of - mean) / std) for n, of in (("a", train), ("b", dark))
    }
    unknown = ood_lab.evaluate(raw["a"], raw["a"], {"dark": raw["b"]}, **settings)
    assert unknown.shift.causes.empty


def test_what_is_no_grey_or_rgb_image_has_no_statistics():
    x = torch.rand(4, 5, 6, 6)
    net = nn.Sequential(nn.Flatten(), nn.Linear(x[0].numel(), 3))
    assert not ood_lab.extract_features(net, x).columns


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ood": {}}, "there is no OOD set"),
        ({"detectors": ["knm"]}, "no detector 'knm'.*knn"),
        ({"detectors": ["odin"]}, "no chosen detector works here.*odin: it needs the network"),
    ],
)
def test_wrong_calls_are_one_line(banks, change, message):
    with pytest.raises(UserError, match=message):
        ood_lab.evaluate(**banks | change)


def test_wrong_arrays_are_one_line():
    head = nn.Linear(5, 2)
    with pytest.raises(UserError, match="do not fit the head"):
        ood_lab.features_from_arrays(np.ones((4, 3)), head=head)
    with pytest.raises(UserError, match="not those of the head"):
        ood_lab.features_from_arrays(np.ones((4, 5)), head=head, logits=np.full((4, 2), 99.0))
    with pytest.raises(UserError, match="NaN"):
        ood_lab.features_from_arrays(np.full((4, 5), np.nan), head=head)
    with pytest.raises(UserError, match="no image"):
        ood_lab.extract_features(head, [])


def test_what_there_is_shows_itself_in_a_line(banks):
    assert {"EvaluationResult", "features_from_arrays", "extract_features", "evaluate"} <= set(
        dir(ood_lab)
    )
    assert not [name for name in dir(ood_lab) if name in ("os", "TYPE_CHECKING", "Any")]
    assert repr(banks["train"]) == (
        "FeatureBank(300 images, 300 with a label, 8 features, 3 classes)"
    )
    assert repr(KNN(k=3)) == "KNN(k=3)"
    outcome = ood_lab.evaluate(**banks, detectors=["msp", "knn"], n_bootstrap=20)
    assert repr(outcome) == "EvaluationResult(msp, knn; 2 OOD sets; print() shows the tables)"


def test_an_outcome_is_shown_saved_and_reported(banks, tmp_path):
    outcome = ood_lab.evaluate(**banks, detectors=["msp", "knn", "odin"], n_bootstrap=20)
    html = outcome._repr_html_()
    assert html.count("<tr>") == html.count("</tr>")
    assert "95% interval" in html
    assert "odin is skipped: it needs the network" in html
    folder = outcome.save(tmp_path / "new" / "folder")
    read = pd.read_parquet(folder / "results.parquet")
    found = read[read["kind"] == "detection"]["value"].reset_index(drop=True)
    pd.testing.assert_series_equal(found, outcome.results.value)
    assert {"verdict", "shift"} <= set(read["kind"])
    assert pd.read_csv(folder / "scores.csv").columns.tolist() == outcome.scores.columns.tolist()
    page = outcome.report(tmp_path / "pages" / "mine.html")
    assert "data:image/svg+xml" in page.read_text()
    assert list((tmp_path / "pages" / "mine_figures").glob("*.png"))


def test_the_verdict_in_python(banks):
    outcome = ood_lab.evaluate(**banks, detectors=["msp", "knn"], n_bootstrap=20)
    verdict = outcome.verdict
    assert verdict.recommended in verdict.best
    assert verdict.detects
    assert set(verdict.shift["dataset"]) == set(banks["ood"])
    assert set(verdict.shift["encoder"]) == set(outcome.results["model"])
    assert any(verdict.recommended in sentence for sentence in verdict.sentences)
    assert verdict.sentences[0] in " ".join(str(outcome).split())
    assert str(verdict).splitlines() == verdict.sentences  # as a person reads it


def test_a_dataset_of_few_images_counts_in_no_mean_in_python(banks):
    few = ood_lab.features_from_arrays(np.full((5, 8), 0.1), head=(3 * np.eye(3, 8), None))
    sets = banks | {"ood": banks["ood"] | {"few": few}}
    outcome = ood_lab.evaluate(**sets, detectors=["msp", "knn"], n_bootstrap=20)
    found = outcome.results.set_index(["metric", "detector", "dataset"])["value"].sort_index()
    for name in ("msp", "knn"):
        mean = (found["auroc", name, "far"] + found["auroc", name, "near"]) / 2
        assert found["mean_auroc", name].item() == pytest.approx(mean)
    value = found["mean_auroc", outcome.verdict.named].item()
    assert f"AUROC {100 * value:.1f}% [" in str(outcome.verdict)
    assert "Fewer than 10 images in few: it does not count in the means." in str(outcome)
    best = outcome.best[outcome.best["best"] & (outcome.best["metric"] == "mean_auroc")]
    assert set(best["detector"]) == set(outcome.verdict.best)


def test_arrays_without_a_head_get_a_linear_one(tmp_path):
    rng = np.random.default_rng(0)
    means = 3 * rng.normal(size=(4, 12))
    (y, labels), noise = rng.integers(4, size=(2, 200)), rng.normal(size=(2, 200, 12))
    far = 3 * rng.normal(size=(80, 12))
    outcome = ood_lab.evaluate(
        train=(means[y] + noise[0], y),
        test=(means[labels] + noise[1], labels),
        ood={"far": far},
        detectors=["knn", "msp"],
        n_bootstrap=20,
    )
    assert outcome.verdict.recommended
    (shift,) = outcome.verdict.shift["metric"]
    assert shift == "held_out_class_units"
    page = outcome.report(tmp_path / "report.html").read_text()
    assert outcome.verdict.sentences[1].split(":")[0] in page
    with pytest.raises(UserError, match="two classes"):
        ood_lab.evaluate(train=(far, np.zeros(80)), test=far, ood={"far": far})


@pytest.mark.slow
def test_arrays_without_labels_are_features_alone(tmp_path):
    rng = np.random.default_rng(0)
    train, test, near = (rng.normal(size=(n, 12)) for n in (200, 100, 90))
    sets = {"train": train, "val": near, "test": test, "ood": {"far": 3 * near}}
    found = ood_lab.evaluate(**sets, detectors="all", n_bootstrap=20)
    assert set(found.detectors) == {"cfood", "gmm", "knn", "mds", "mds_pp", "residual"}
    assert found.skipped["msp"].startswith("msp needs logits, which")
    assert (found.scores["pred"] == -1).all()
    assert any("gives features only" in remark for remark in found.verdict.remarks)
    # The distance to one mean, as scikit-learn has it: 200 images are enough for 12 features.
    reference = EmpiricalCovariance().fit(train).mahalanobis(test)
    ours = found.scores[found.scores["dataset"] == "test"]["mds"]
    np.testing.assert_allclose(ours, reference, rtol=1e-4)
    assert found.report(tmp_path / "report.html").exists()


def test_the_warnings_of_a_run(banks, caplog):
    test = banks["test"]
    wrong = dataclasses.replace(test, labels=(test.labels + 1) % 3)
    with caplog.at_level("WARNING", "ood_lab"):
        outcome = ood_lab.evaluate(
            banks["train"], wrong, banks["ood"], detectors=["msp"], n_bootstrap=9
        )
    assert "no better than chance" in outcome.warnings[0]
    assert outcome.warnings[0] in caplog.text
    assert outcome.warnings[0].split(":")[0] in outcome._repr_html_()
    far = banks["ood"]["far"]  # in the place of ID
    outcome = ood_lab.evaluate(banks["train"], far, {"id": test}, detectors=["msp"], n_bootstrap=9)
    assert "AUROC" in outcome.warnings[0]
    assert not ood_lab.evaluate(**banks, detectors=["msp"], n_bootstrap=9).warnings


def test_hints_are_written_as_python_is(banks):
    with pytest.raises(UserError, match=r"set detectors=\{'knn': KNN\(k=\.\.\.\)\}"):
        ood_lab.evaluate(**banks, detectors={"knn": KNN(k=1000)}, n_bootstrap=9)


IMAGES = torch.rand(6, 3, 4, 4)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (IMAGES[0], None, r"images are of shape \[3, 4, 4\]: give a tensor \[N, 3, H, W\]"),
        (IMAGES.numpy()[0], None, r"images are of shape \[3, 4, 4\]"),
        ([IMAGES[0, 0]], None, r"images are of shape \[4, 4\]"),
        (["a.png"], None, r"images are a str: give a tensor"),
        ((255 * IMAGES).byte(), None, r"images are torch.uint8: give numbers as the network"),
        (IMAGES, torch.zeros(5), r"labels \[5\] should be \[6\]"),
        (IMAGES, torch.eye(6), r"labels \[6, 6\] should be \[6\], one number per image"),
        (IMAGES, torch.full((6,), 0.5), "labels should be whole numbers"),
        ([IMAGES], torch.zeros(6), r"labels are for images in one tensor"),
        ([(IMAGES, torch.zeros(2))], None, r"labels \[2\] should be \[6\]"),
    ],
)
def test_images_and_labels_of_a_wrong_shape(images, labels, message):
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 3))
    with pytest.raises(UserError, match=message):
        ood_lab.extract_features(net, images, labels)


def test_labels_that_the_head_does_not_have():
    with pytest.raises(UserError, match="labels go up to 7, the head has the classes 0 to 1"):
        ood_lab.features_from_arrays(np.ones((2, 5)), [0, 7], head=nn.Linear(5, 2))


HEAD = nn.Linear(8, 3)
NET = nn.Sequential(
    nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), HEAD
).eval()
X, Y = torch.rand(12, 3, 16, 16), torch.arange(12) % 3


class Rows(torch.utils.data.Dataset):
    """Never raises an IndexError, as many datasets."""

    def __len__(self):
        return len(X)

    def __getitem__(self, row):
        return {"pixel_values": X[row % 12], "labels": int(Y[row % 12])}


class Answers(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.net, self.kind = NET, kind

    def forward(self, image):
        return self.kind(self.net(image))


ACCEPTED = {
    "list of images": lambda f: f(NET, list(X)),
    "list of pairs": lambda f: f(NET, [(x, int(y)) for x, y in zip(X, Y, strict=True)]),
    "dataset": lambda f: f(NET, Rows()),
    "loader of dicts": lambda f: f(NET, torch.utils.data.DataLoader(Rows(), 5)),
    "without labels": lambda f: f(
        NET, torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X), 5)
    ),
    "lists in a batch": lambda f: f(NET, [(list(X), list(Y))]),
    "arrays": lambda f: f(NET, [(X.numpy(), Y.numpy(), ["path"] * 12)]),
    "float64": lambda f: f(NET, X.double().numpy(), Y.tolist()),
    "generator": lambda f: f(NET, (X[i : i + 5] for i in (0, 5, 10))),
    "half": lambda f: f(NET, X.half(), [None] * 12),
    "spread": lambda f: f(nn.DataParallel(NET), X),
    "object": lambda f: f(Answers(lambda z: SimpleNamespace(logits=z)), X),
    "dict": lambda f: f(Answers(lambda z: {"logits": z, "loss": None}), X),
    "tuple": lambda f: f(Answers(lambda z: (z,)), X),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_images_are_taken_as_users_have_them(name):
    bank = ACCEPTED[name](ood_lab.extract_features)
    with torch.no_grad():
        torch.testing.assert_close(bank.features, NET[:-1](X), atol=2e-3, rtol=0)
    assert bank.labels.tolist() in (Y.tolist(), [-1] * 12)
    assert bank.index.tolist() == list(range(12))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_networks_in_half_precision_serve_the_detectors_with_gradients(dtype):
    net = copy.deepcopy(NET).to(dtype)
    bank = ood_lab.extract_features(net, X, Y, detectors=["odin", "iodin"])
    assert len(bank.columns) == 3  # and the statistics of the images
    assert all(bool(column.isfinite().all()) for column in bank.columns.values())


REFUSED = {
    "function": (lambda f: f(lambda x: x, X), "the network is a function"),
    "text": (lambda f: f(NET, "folder"), "images are a str"),
    "none": (lambda f: f(NET, None), "images are a NoneType"),
    "texts": (lambda f: f(NET, X, ["cat"] * 12), "labels are texts such as 'cat'"),
    "from one": (lambda f: f(NET, X, Y + 1), "labels go up to 3, the head has the classes 0 to 2"),
    "entries": (lambda f: f(NET, [{"foo": X}]), "entries foo: call the images 'image'"),
    "last": (lambda f: f(NET, X.permute(0, 2, 3, 1)), r"images\.permute\(0, 3, 1, 2\)"),
    "nan": (lambda f: f(NET, X * float("nan")), "images have NaN"),
    "empty": (lambda f: f(NET, X[:0]), "there is no image"),
    "dropout": (
        lambda f: f(nn.Sequential(*NET[:-1], Always(), HEAD), X),
        r"runs twice on the same images: a logit moves.*'4' \(Always\).*allow_random=True",
    ),
    "detector": (lambda f: f(NET, X, detectors=[3]), "detectors has a int"),
}


class Always(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.5)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_taken_is_one_line(name):
    call, message = REFUSED[name]
    with pytest.raises(UserError, match=message) as refusal:
        call(ood_lab.extract_features)
    assert "\n" not in str(refusal.value)


def test_chance_is_accepted_on_request(caplog):
    net = nn.Sequential(*NET[:-1], Always(), HEAD)
    assert len(ood_lab.extract_features(net, X, allow_random=True)) == 12
    assert "allow_random=True accepts that" in caplog.text


def test_heads_and_arrays_are_taken_as_users_have_them():
    features = NET[:-1](X)  # needs a gradient
    plain = ood_lab.features_from_arrays(features, Y, head=HEAD)
    dropout = nn.Sequential(nn.Dropout(), HEAD)
    for x, y, head in [
        (list(features), [*Y.tolist()[:-1], None], dropout),
        (features.detach().numpy(), Y.tolist(), nn.Sequential(HEAD)),
        (pd.DataFrame(features.detach().numpy()), pd.Series(Y.numpy()), [HEAD.weight, HEAD.bias]),
    ]:
        bank = ood_lab.features_from_arrays(x, y, head=head)
        torch.testing.assert_close(bank.logits, plain.logits)
    for head in (HEAD.weight, nn.Sequential(HEAD, nn.Linear(3, 3)), (HEAD.weight, torch.ones(2))):
        with pytest.raises(UserError, match="head"):
            ood_lab.features_from_arrays(features, head=head)


def test_detectors_that_the_network_cannot_serve_are_left_out(caplog):
    bank = ood_lab.extract_features(NET, X, detectors="all")
    assert any(key.startswith("odin") for key in bank.columns)
    assert "left out: " in caplog.text
    assert "detectors={'rankfeat': RankFeat(" in caplog.text
    with pytest.raises(UserError, match="no chosen detector works here"):
        ood_lab.extract_features(NET, X, detectors="rankfeat")


def test_detectors_need_no_name(banks):
    outcome = ood_lab.evaluate(**banks, detectors=[KNN(k=3), "msp"], n_bootstrap=9)
    assert set(outcome.detectors) == {"knn", "msp"}


def test_scores_for_a_calibration_are_one_number_an_image(banks):
    facts = {"classes": list("abc"), "weights_sha256": "", "transform": ""}
    detector = KNN(k=3).fit(banks["train"])
    scores = detector.score(banks["test"])
    of = ood_lab.detectors.CalibratedDetector.of
    calibrated = of(detector, scores.numpy(), 0.05, **facts)
    assert calibrated.threshold == of(detector, scores, 0.05, **facts).threshold
    for wrong, alpha, says in [
        (scores[:, None], 0.05, r"scores \[150, 1\] should be \[N\]"),
        (scores * float("nan"), 0.05, "NaN"),
        (scores, "0.05", "alpha=0.05: give a number"),
    ]:
        with pytest.raises(UserError, match=says):
            of(detector, wrong, alpha, **facts)
    with pytest.raises(UserError, match="NaN"):
        calibrated.is_ood([float("nan")])
    with pytest.raises(UserError, match="classes=abc: give a list"):
        of(detector, scores, 0.05, **facts | {"classes": "abc"})
    with pytest.raises(UserError, match="with 1 class names, the network has 3 outputs"):
        of(detector, scores, 0.05, **facts | {"classes": ["a"]}).score(banks["test"])


def _labelled(labels, seed=0):
    features = torch.randn(60, 3, generator=torch.Generator().manual_seed(seed))
    features += 6 * nn.functional.one_hot(torch.arange(60) % 3, 3)
    return ood_lab.features_from_arrays(features, labels, head=(6 * torch.eye(3), None))


@pytest.mark.parametrize("name", ["train", "val", "test", "ID", 3, None, ""])
def test_an_ood_set_has_a_name_of_its_own(name):
    bank = _labelled(torch.arange(60) % 3)
    with pytest.raises(UserError, match=r"^ood: "):
        ood_lab.evaluate(bank, bank, {name: bank}, detectors=["msp"], n_bootstrap=5)


def test_one_hot_labels_are_classes(caplog):
    classes = torch.arange(60) % 3
    one_hot = nn.functional.one_hot(classes, 3)
    bank = _labelled(one_hot.numpy())
    assert "single 1" in caplog.text
    assert torch.equal(bank.labels, classes)
    several = _labelled(one_hot | nn.functional.one_hot((classes + classes % 2) % 3, 3))
    assert several.multilabel
    result = ood_lab.evaluate(several, bank, {"far": _labelled(None, 1)}, n_bootstrap=5)
    assert "entropy" in result.skipped  # test is read as train is


def test_settings_are_chosen_in_python(banks):
    grids = {"knn": {"k": [1, 5, 40]}}
    options = {"detectors": ["knn"], "n_bootstrap": 9, "tuning_grids": grids}
    result = ood_lab.evaluate(**banks, **options, tuning="id_only")
    assert list(result.detectors) == ["knn", "knn_tuned"]
    chosen = result.record.tuning["detectors"]["knn"]
    assert result.detectors["knn_tuned"].k == chosen["chosen"]["k"]
    assert [candidate["k"] for candidate in chosen["candidates"]] == grids["knn"]["k"]
    sets = {"ood": {"far": banks["ood"]["far"]}, "tuning_ood": {"near": banks["ood"]["near"]}}
    result = ood_lab.evaluate(**banks | sets, **options, tuning="val_ood")
    assert set(result.scores["dataset"]) == {"test", "far"}
    best = result.record.tuning["detectors"]["knn"]["chosen"]
    assert list(best["auroc_by_set"]) == ["near"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tuning": "id"}, "tuning=id.*id_only"),
        ({"tuning": "val_ood"}, "tuning='val_ood' goes with tuning_ood"),
        ({"tuning_ood": "near"}, "tuning='val_ood' goes with tuning_ood"),
        ({"tuning": "id_only", "tuning_grids": {"msp": {"k": 3}}}, "tuning_grids.msp.k=3: give a"),
        ({"tuning": "val_ood", "tuning_ood": "test"}, "would choose settings on what is evaluated"),
        ({"csid": "far"}, "'far' is in ood and in csid"),
    ],
)
def test_settings_and_sets_that_clash_are_one_line(banks, change, message):
    sets = {"near": banks["ood"]["near"], "test": banks["test"], "far": banks["ood"]["far"]}
    for name in {"tuning_ood", "csid"} & set(change):
        set_name = "same" if change[name] == "test" else change[name]
        change = change | {name: {set_name: sets[change[name]]}}
    call = banks | {"ood": {"far": banks["ood"]["far"]}, "detectors": ["msp"]} | change
    with pytest.raises(UserError, match=message):
        ood_lab.evaluate(**call)


def test_the_full_spectrum_in_python(banks):
    noise = 0.3 * torch.randn(150, 8, generator=torch.Generator().manual_seed(0))
    test = banks["test"]
    noisy = ood_lab.features_from_arrays(
        test.features + noise, test.labels, head=(test.head_weight, test.head_bias)
    )
    options = {"detectors": ["msp"], "n_bootstrap": 9, "csid": {"noisy": noisy}}
    result = ood_lab.evaluate(**banks, **options)
    table = result.results.set_index(["metric", "dataset"])["value"]
    scores = result.scores.set_index("dataset")["msp"]
    expected = auroc(scores.loc[["test", "noisy"]], scores.loc["far"])
    assert table["auroc", "far"] == pytest.approx(expected)
    right = torch.cat([b.predictions == b.labels for b in (test, noisy)]).double().mean()
    full = result.results.query("metric == 'id_accuracy_full_spectrum'")["value"].item()
    assert full == pytest.approx(float(right))


def test_published_numbers_in_python(banks):
    groups = {"near": ["far"], "far": ["near"]}
    result = ood_lab.evaluate(**banks, detectors=["msp"], n_bootstrap=9, groups=groups)
    found = result.verify("openood_v15_cifar10/msp/near", "cifar10")
    row = found.table.set_index("row").loc["openood_v15_cifar10/msp/near/auroc"]
    value = result.results.query("metric == 'mean_near_auroc'")["value"].item()
    assert row["run"] == pytest.approx(100 * value)
    assert row["verdict"] == "other protocol"
    assert "n.test" in set(found.differences["field"])
    assert found.outside == found.comparable == 0
    with pytest.raises(UserError, match="holds none of the"):
        result.verify("openood_v15_cifar10/klm", "cifar10")
