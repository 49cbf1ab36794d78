"""Training objectives: formulas, the outliers of a batch, and trainings through train.py."""

import functools
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from cli import ROOT, call, run_folders
from hydra.utils import instantiate
from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from omegaconf import OmegaConf
from PIL import Image
from scipy.special import log_softmax, logsumexp
from scipy.stats import chi2
from torch import nn
from torch.utils.data import DataLoader, Dataset

from ood_lab.builtin.vessels.datamodule import VesselsDataModule
from ood_lab.common.errors import UserError
from ood_lab.data.datamodules.epoch_sampler import EpochSampler, TrainingView
from ood_lab.models import Backbone, Classifier, Objective, Output, module_backbone
from ood_lab.models.objectives.base import Step
from ood_lab.models.objectives.logit_norm import LogitNorm
from ood_lab.models.objectives.mixed_images import MixedImages
from ood_lab.models.objectives.mixoe import MixOE
from ood_lab.models.objectives.outlier_exposure import OutlierExposure
from ood_lab.models.objectives.t2fnorm import T2FNorm
from ood_lab.models.objectives.vos import VOS
from ood_lab.models.training.lightning_extensions import EpochSeed

SIZES = {"train": 150, "val": 60, "test": 60, "per_shift_set": 8, "per_cell": 0}
SMOKE = ("experiment=smoke", "detector=[msp]", "logger=none", "task.report=false", "task=score")
approx = pytest.approx
LOSSES = ROOT / "conf/loss"
NAMES = [path.stem for path in sorted(LOSSES.glob("*.yaml"))]
SMALL = [f"data.{key}={value}" for key, value in SIZES.items()]


def built(name):
    return instantiate(OmegaConf.load(LOSSES / f"{name}.yaml"))


class Linear(Backbone):
    """Features are the image's first values; the head is random."""

    def __init__(self, classes=4, width=6):
        super().__init__()
        self.name, self.head = "linear", nn.Linear(width, classes, dtype=torch.float64)
        self.layer, self.widths = self.head, (width, classes)
        self.data_config = {"input_size": (3, 4, 4)}

    def forward(self, image):
        features = image.flatten(1)[:, : self.layer.in_features]
        return Output(self.layer(features), features)


@pytest.fixture
def step():
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    image = 5 * torch.randn(6, 3, 4, 4, generator=generator, dtype=torch.float64)
    outliers = 5 * torch.randn(6, 3, 4, 4, generator=generator, dtype=torch.float64)
    return Step(Linear(), image, torch.tensor([0, 1, 2, 3, 0, 1]), outliers)


def loss_of(objective, step):
    objective.double().attach(step.backbone)
    objective.double()
    terms = objective(step).terms
    return {name: term.item() for name, term in terms.items()}


def cross_entropy(logits, targets):
    return -(targets * log_softmax(logits, 1)).sum(1).mean()


def logits_of(step, images=None):
    return step.backbone(step.image if images is None else images).logits.detach().numpy()


def test_losses_of_logits_are_the_formulas_of_the_papers(step):
    z, outliers, one_hot = logits_of(step), logits_of(step, step.outliers), np.eye(4)[step.label]
    plain = cross_entropy(z, one_hot)
    exposed = loss_of(OutlierExposure(weight=0.3), step)
    uniform = np.full((6, 4), 1 / 4)
    assert exposed == {
        "ce": approx(plain),
        "exposure": approx(0.3 * cross_entropy(outliers, uniform)),
    }
    assert list(OutlierExposure()(replace(step, outliers=None)).terms) == ["ce"]
    # The authors' lambda, and their batch of 128 images and 256 outliers.
    assert (OutlierExposure().weight, OutlierExposure().outliers_per_image) == (0.5, 2)
    normed = z / (0.04 * np.sqrt((z**2).sum(1))[:, None])
    assert loss_of(LogitNorm(), step) == {"logit_norm": approx(cross_entropy(normed, one_hot))}
    energy = loss_of(built("energy_reg"), step)
    inside, outside = -logsumexp(z, 1), -logsumexp(outliers, 1)
    hinges = np.maximum(inside + 23, 0) ** 2, np.maximum(-5 - outside, 0) ** 2
    expected = plain + 0.1 * (hinges[0].mean() + hinges[1].mean())
    assert energy == {"EnergyRegularizedLoss": approx(expected)}
    assert loss_of(Objective(), step) == {"ce": approx(plain)}


def test_t2fnorm_reads_directions_and_is_evaluated_without_them(step):
    objective, head = T2FNorm(tau=0.1), step.backbone.head
    z, weight = step.image.flatten(1)[:, :6].numpy(), head.weight.detach().numpy()
    bias = head.bias.detach().numpy()
    directions = z / np.linalg.norm(z, axis=1, keepdims=True)
    expected = cross_entropy(directions @ weight.T / 0.1 + bias, np.eye(4)[step.label])
    assert loss_of(objective, step) == {"t2fnorm": approx(expected)}
    evaluated = objective.evaluated(step.backbone)["head.weight"].numpy()
    step.backbone.eval()
    assert objective(step).logits.detach().numpy() == approx(z @ evaluated.T + bias)
    assert T2FNorm(scaled=False).evaluated(step.backbone) == {}


def test_images_are_mixed_with_the_labels_that_belong_to_their_shares(step):
    one = replace(step, image=torch.ones_like(step.image), outliers=torch.zeros_like(step.image))
    for cut in (False, True):
        objective = MixOE(alpha=1.0, cut=cut)
        image, share = objective.mixed(one.image, one.outliers)
        assert image.mean().item() == approx(share)
        assert cut is (set(image.unique().tolist()) <= {0.0, 1.0})
        torch.manual_seed(1)
        image, share = objective.mixed(step.image, step.outliers)
        torch.manual_seed(1)
        terms = loss_of(objective, step)
        target = share * np.eye(4)[step.label] + (1 - share) / 4
        assert terms["mixed"] == approx(cross_entropy(logits_of(step, image), target))
        mixing = MixedImages(alpha=1.0, cut=cut)
        torch.manual_seed(1)
        image, target = mixing.mixed(step)
        if not cut:  # the pairs are those of torchvision: each image with the one before
            shares = target[torch.arange(6), step.label].numpy()
            other = step.image.roll(1, 0).numpy()
            share = shares[1]
            assert image.numpy() == approx(share * step.image.numpy() + (1 - share) * other)
        assert target.sum(1).numpy() == approx(1)
        mixing.attach(step.backbone)
        torch.manual_seed(1)
        image, target = mixing.mixed(step)
        torch.manual_seed(1)
        expected = cross_entropy(logits_of(step, image), target.numpy())
        assert mixing(step).terms["ce"].item() == approx(expected)
    rare = MixedImages(probability=0.3)
    rare.build(step.backbone)
    assert 0.2 < sum(rare.mixes() for _ in range(500)) / 500 < 0.4
    step.backbone.eval()
    assert loss_of(MixedImages(), step) == loss_of(Objective(), step)


def test_vos_draws_far_features_of_each_class_and_separates_their_energies(step):
    torch.manual_seed(0)
    objective = VOS(queue=40, draws=500, start=0.5)
    objective.attach(step.backbone)
    objective.double()
    factor, means = torch.randn(6, 6).double(), 20 * torch.randn(4, 6).double()
    for _ in range(60):
        labels = torch.arange(4)
        objective.queues.remember(torch.randn(4, 6).double() @ factor.T + means, labels)
    virtual = objective.virtual_outliers().numpy()
    kept = objective.queues.features.numpy()
    rows = np.concatenate([part - part.mean(0) for part in kept])
    precision = np.linalg.inv(rows.T @ rows / len(rows) + 1e-4 * np.eye(6))
    offset = virtual - kept.mean(1)
    distance = np.einsum("cd,de,ce->c", offset, precision, offset)
    # The largest of 500 draws of a chi-squared variable with 6 degrees of freedom.
    low, high = (chi2.ppf(p ** (1 / 500), 6) for p in (1e-4, 1 - 1e-4))
    assert ((low < distance) & (distance < high)).all()
    logits, far = torch.randn(5, 4).double(), torch.randn(3, 4).double()
    w = objective.energy_weight.detach().numpy().clip(0)
    energies = -np.log((np.exp(np.concatenate([logits, far])) * w).sum(1))
    line = objective.line
    scores = energies * line.weight.item() + line.bias.item()
    signs = np.array([1] * 5 + [-1] * 3)
    expected = np.log1p(np.exp(-signs * scores)).mean()
    assert objective.separation(logits, far).item() == approx(expected)
    assert list(objective(step).terms) == ["ce"]  # before its start
    assert list(objective(replace(step, progress=0.6)).terms) == ["ce", "virtual"]
    with pytest.raises(UserError, match=r"set loss\.queue="):
        VOS(queue=10**9).attach(step.backbone)


def test_what_reads_features_needs_a_head(step):
    step.backbone.head = None
    for objective in (T2FNorm(), VOS()):
        with pytest.raises(UserError, match="needs a linear head"):
            objective.attach(step.backbone)


def line_of(name, strangers):
    """The command line of a short training with a loss, all of its terms included."""
    loss = built(name)
    terms = ["loss.start=0"] if hasattr(loss, "start") else []
    terms += ["loss.queue=1"] if hasattr(loss, "queue") else []
    terms += [f"data.outliers={strangers}"] if outliers_of(loss) else []
    return [f"loss={name}", f"detector={['msp', *own_score(name)]}".replace("'", ""), *terms]


def own_score(name):
    loss = built(name)
    return [loss.own_score] if isinstance(loss, Objective) and loss.own_score else []


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_every_loss_trains_two_steps_through_the_command(name, processes, strangers, tmp_path):
    line = (*line_of(name, strangers), "debug=true", f"paths.outputs={tmp_path}")
    line = (*SMOKE, *SMALL, *line, "data.batch_size=32")
    if processes == 1:
        assert call("train.py", *line) == 0
    else:
        command = [sys.executable, str(ROOT / "train.py"), *line, "trainer=ddp_cpu"]
        subprocess.run(command, check=True, timeout=500)
    (table,) = tmp_path.rglob("scores.parquet")
    scores = pd.read_parquet(table)
    assert scores.msp.notna().all()
    for own in own_score(name):
        assert scores[own].nunique() > 1


class Batches(Dataset):
    """What the batches of a training hold, of noise."""

    def __init__(self, loss):
        draw = functools.partial(torch.randn, generator=torch.Generator().manual_seed(0))
        self.columns = {"image": draw(24, 3, 4, 4), "label": torch.arange(24) % 4}
        for key, n in (("outliers", outliers_of(loss)), ("views", getattr(loss, "views", 1) - 1)):
            self.columns |= {key: draw(24, n, 3, 4, 4)} if n else {}

    def __len__(self):
        return 24

    def __getitem__(self, index):
        return {key: rows[index] for key, rows in self.columns.items()}


def outliers_of(loss):
    return getattr(loss, "outliers_per_image", 0)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"precision": "bf16-mixed", "accumulate_grad_batches": 2}])
@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_training_equals_one_that_ran_through(name, options, tmp_path):
    """The second of two epochs has all terms, and reads what the first has left."""

    def fit(**resume):
        seed_everything(0, verbose=False)
        body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())
        net = nn.Sequential(body, nn.Linear(32, 4))
        settings = {"start": 0.5, "queue": 3, "clusters": 4, "dimensions": 4, "memory": 40}
        loss = OmegaConf.load(LOSSES / f"{name}.yaml")
        loss = instantiate(loss, **{k: v for k, v in settings.items() if k in loss})
        backbone = module_backbone(net, "1", input_size=4, mean=0.5, std=0.5)
        optimizer = functools.partial(torch.optim.SGD, lr=0.01, momentum=0.9)
        model = Classifier(backbone, optimizer, loss=loss)
        kept = ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1)
        trainer = Trainer(
            accelerator="cpu", logger=False, callbacks=[EpochSeed(0), kept], max_epochs=2,
            enable_progress_bar=False, enable_model_summary=False, **options,
        )  # fmt: skip
        trainer.fit(model, DataLoader(Batches(loss), batch_size=4), **resume)
        return model.state_dict(), trainer.callback_metrics

    through, logged = fit()
    resumed, _ = fit(ckpt_path=tmp_path / "epoch=0.ckpt", weights_only=True)
    torch.testing.assert_close(resumed, through)
    assert all(bool(value.isfinite().all()) for value in through.values())
    later = {"vos": "virtual", "npos": "virtual", "mcd": "discrepancy", "udg": "clusters"}
    assert name not in later or f"train/loss_{later[name]}" in logged


@pytest.mark.slow
def test_an_evaluation_knows_how_the_network_was_trained(tmp_path, capsys):
    """The score of its objective is beside the others, unless detectors are chosen."""
    line = ("logger=none", "task.report=false", "trainer.accelerator=cpu", "task=score")
    small = (*SMALL, "trainer.max_epochs=1", f"paths.outputs={tmp_path}")
    training = ("loss=conf_branch", "detector=[msp]", "name=trained")
    assert call("train.py", *line, *small, *training) == 0
    (run,) = run_folders(tmp_path / "trained")
    assert call("eval.py", *line, f"ckpt={run}", f"paths.outputs={tmp_path}", "name=scored") == 0
    (scored,) = run_folders(tmp_path / "scored")
    assert {"conf_branch", "msp", "knn"} < set(pd.read_parquet(scored / "scores.parquet"))
    # A prediction too.
    Image.new("RGB", (64, 64), "red").save(tmp_path / "new.png")
    new = ("task=predict", f"task.images={tmp_path}/new.png", "detector=[conf_branch]", "name=new")
    assert call("eval.py", f"ckpt={run}", *new, "logger=none", f"paths.outputs={tmp_path}") == 0
    (predicted,) = run_folders(tmp_path / "new")
    assert "conf_branch_score" in pd.read_csv(predicted / "predictions.csv")
    ckpt = (f"ckpt={run}", *line, "detector=[msp]", f"paths.outputs={tmp_path}")
    for arguments, message in (
        (("loss=logit_norm",), "was trained with another loss"),
        (("detector=[rotpred]",), "has trained with loss=rotpred"),
    ):
        assert call("eval.py", *ckpt, *arguments) == 1
        assert message in capsys.readouterr().err


def test_outliers_follow_from_seed_and_epoch():
    data = VesselsDataModule(**SIZES)
    data.setup()
    train, others = data.splits["train"], data.splits["container"]
    view = TrainingView(train, lambda image: torch.tensor(np.asarray(image)))
    view.expose(others, 3)
    pairs = [list(EpochSampler(len(train), 0, lambda epoch=epoch: epoch)) for epoch in (0, 0, 1)]
    drawn = [view.__getitems__(part[:20]) for part in pairs]
    known = [np.asarray(others.load_image(i)) for i in range(len(others))]
    rows = [
        [
            next(i for i, k in enumerate(known) if np.array_equal(o, k))
            for s in part
            for o in s["outliers"]
        ]
        for part in drawn
    ]
    assert rows[0] == rows[1] != rows[2]
    assert len(rows[0]) == 60
    assert set(rows[0]) == set(range(len(others)))


@pytest.fixture(scope="module")
def strangers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("strangers")
    noise = np.random.default_rng(0)
    for i in range(20):
        pixels = noise.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((64, 64)).save(folder / f"{i}.png")
    return folder


@pytest.mark.slow
def test_a_network_learns_to_be_unsure_of_outliers(strangers, tmp_path):
    """Through train.py; the outliers are then predicted by every network."""
    length = ("trainer.max_epochs=10", "data.batch_size=16", *SMALL, f"paths.outputs={tmp_path}")
    losses = {
        "plain": (),
        "exposed": (
            "loss=outlier_exposure",
            "loss.weight=3",
            f"data.outliers={strangers}",
        ),
    }
    confidence = {}
    for name, loss in losses.items():
        assert call("train.py", *SMOKE, *length, *loss, f"name={name}") == 0
        (run,) = run_folders(tmp_path / name)
        scores = pd.read_parquet(run / "scores.parquet")
        sets = json.loads((run / "manifest.json").read_text())["data"]
        assert ("outliers" in sets) == (name == "exposed")
        assert "outliers" not in set(scores.dataset)
        line = (f"ckpt={run}", f"name=predict_{name}", f"paths.outputs={tmp_path}", "logger=none")
        images = ("task=predict", f"task.images={strangers}", "detector=[msp]")
        assert call("eval.py", *images, *line) == 0
        (predicted,) = run_folders(tmp_path / f"predict_{name}")
        confidence[name] = -pd.read_csv(predicted / "predictions.csv").msp_score.mean()
    unsure = 1 / 11  # what a network says that knows nothing of 11 classes
    assert confidence["plain"] - unsure > 1.5 * (confidence["exposed"] - unsure)


@pytest.mark.slow
def test_a_training_with_logit_norm(tmp_path, capsys):
    line = ("loss=logit_norm", "loss.tau=0.1", f"paths.outputs={tmp_path}")
    assert call("train.py", *SMOKE, *SMALL, *line, "logger=csv") == 0
    (run,) = run_folders(tmp_path)
    (logged,) = run.rglob("metrics.csv")
    metrics = pd.read_csv(logged)
    # At most 1 / tau apart, so at the start near log(11), whatever the length of the logits.
    assert 0 < metrics["val/loss"].dropna().iloc[0] < 10


@pytest.mark.slow
def test_wrong_outliers_are_one_line(strangers, tmp_path, capsys):
    data = VesselsDataModule(**SIZES)
    data.setup()
    for i in range(12):
        for part in ("train", "ood"):
            place = tmp_path / part / ("abc"[i % 3] if part == "train" else "") / f"{i}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            data.splits["test" if part == "ood" else "train"].load_image(i).save(place)
    line = ("detector=[msp]", "logger=none", "task=score", "trainer.accelerator=cpu")
    own = (*line, f"data.id.train={tmp_path}/train", f"data.ood.mine={tmp_path}/ood", "data=folder")
    exposed = "loss=outlier_exposure"
    cases = {
        "give them with data.outliers=DIR": (*SMOKE, *SMALL, exposed),
        "this loss does not use data.outliers": (*SMOKE, *SMALL, f"data.outliers={strangers}"),
        "images that are ID or evaluated": (*own, exposed, f"data.outliers={tmp_path}/ood"),
        "does not exist": (*SMOKE, *SMALL, exposed, f"data.outliers={tmp_path}/none"),
        "nts trains with a loss of its own": (*SMOKE, *SMALL, exposed, "model=nts"),
    }
    for message, arguments in cases.items():
        assert call("train.py", *arguments, f"paths.outputs={tmp_path}/out") == 1
        error = capsys.readouterr().err.strip()
        assert message in error
        assert len([line for line in error.splitlines() if "error" in line]) == 1
