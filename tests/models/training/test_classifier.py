"""Training: what is logged, saved, scheduled, averaged and refused."""

import functools
import math

import pytest
import torch
from lightning.pytorch import Callback, Trainer, seed_everything
from lightning.pytorch.callbacks import EMAWeightAveraging, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, Dataset

from ood_lab.common.errors import UserError
from ood_lab.models import Classifier, load_weights, module_backbone, weights_sha256

STEPS = 6  # a training: 3 epochs of 2 batches


class Blobs(Dataset):
    """Images whose mean colour tells the class."""

    def __init__(self, n=16):
        self.labels = torch.arange(n) % 2
        noise = torch.randn(n, 3, 4, 4, generator=torch.Generator().manual_seed(0))
        self.images = 0.3 * noise + (self.labels.float() * 2 - 1).view(-1, 1, 1, 1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"image": self.images[index], "index": index, "label": int(self.labels[index])}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


def classifier(cls=Classifier, lr=0.05, **options):
    seed_everything(0, verbose=False)
    backbone = module_backbone(Net(), "fc", input_size=4, mean=0.5, std=0.5)
    return cls(backbone, functools.partial(torch.optim.SGD, lr=lr), **options)


def trainer(tmp_path, *callbacks, **options):
    options = {"max_epochs": 3, "enable_checkpointing": bool(callbacks)} | options
    return Trainer(
        accelerator="cpu", devices=1, logger=False, callbacks=list(callbacks) or None,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
        num_sanity_val_steps=0, **options,
    )  # fmt: skip


def checkpoint(tmp_path):
    return ModelCheckpoint(tmp_path, filename="last", enable_version_counter=False)


def loaders(n=16):
    return DataLoader(Blobs(n), batch_size=8), DataLoader(Blobs(n), batch_size=5)


def test_training_learns_and_logs(tmp_path):
    model = classifier()
    train, val = loaders()
    fit = trainer(tmp_path, max_epochs=10)
    fit.fit(model, train, val)
    logged = fit.callback_metrics
    assert set(logged) >= {"train/loss", "train/acc", "val/loss", "val/acc"}
    assert logged["val/acc"] == 1.0
    model.eval()
    with torch.no_grad():
        logits = model(Blobs().images).logits
    expected = -logits.log_softmax(1)[torch.arange(16), Blobs().labels].mean()
    assert math.isclose(float(logged["val/loss"]), float(expected), rel_tol=1e-5)


def test_label_smoothing_is_for_training_only():
    model = classifier(label_smoothing=0.2)
    batch = {"image": Blobs().images, "label": Blobs().labels}
    outputs = model.outputs(batch)
    log_p = outputs.logits.log_softmax(1)
    hard = -log_p[torch.arange(16), Blobs().labels].mean()
    torch.testing.assert_close(
        model.train().losses(outputs, batch)["ce"], 0.8 * hard - 0.2 * log_p.mean()
    )
    torch.testing.assert_close(model.eval().losses(outputs, batch)["ce"], hard)


@pytest.mark.parametrize(
    ("factory", "interval", "length"),
    [
        (functools.partial(torch.optim.lr_scheduler.OneCycleLR, max_lr=0.1), "step", STEPS),
        (torch.optim.lr_scheduler.CosineAnnealingLR, "step", STEPS),
        (torch.optim.lr_scheduler.CosineAnnealingLR, "epoch", 3),
        (functools.partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=99), "step", 99),
        (functools.partial(torch.optim.lr_scheduler.OneCycleLR, max_lr=0.1, total_steps=None),
         "step", STEPS),
        (functools.partial(torch.optim.lr_scheduler.OneCycleLR, max_lr=0.1, epochs=4,
                           steps_per_epoch=5), "step", 20),
    ],
)  # fmt: skip
def test_schedules_get_the_length_of_the_training(tmp_path, factory, interval, length):
    model = classifier(scheduler=factory, scheduler_interval=interval)
    fit = trainer(tmp_path)
    fit.fit(model, *loaders())
    schedule = fit.lr_scheduler_configs[0].scheduler
    assert getattr(schedule, "T_max", None) == length or schedule.total_steps == length
    moved = {"step": STEPS, "epoch": 3}[interval]
    assert schedule.last_epoch == moved
    if hasattr(schedule, "T_max") and length == moved:
        assert schedule.get_last_lr() == [0.0]  # it has come to its end


def test_schedules_without_a_length(tmp_path):
    milestones = functools.partial(
        torch.optim.lr_scheduler.MultiStepLR, milestones=[1, 2], gamma=0.1
    )
    model = classifier(scheduler=milestones)
    fit = trainer(tmp_path)
    fit.fit(model, *loaders())
    assert math.isclose(fit.optimizers[0].param_groups[0]["lr"], 0.05 * 0.01)
    cosine = classifier(scheduler=torch.optim.lr_scheduler.CosineAnnealingLR)
    with pytest.raises(UserError, match="max_epochs"):
        trainer(tmp_path, max_epochs=-1, max_steps=3).fit(cosine, *loaders())


def test_plateau_reads_the_validation_loss(tmp_path):
    factory = functools.partial(
        torch.optim.lr_scheduler.ReduceLROnPlateau, patience=0, threshold=1e9
    )
    model = classifier(scheduler=factory)
    fit = trainer(tmp_path)
    fit.fit(model, *loaders())
    assert fit.optimizers[0].param_groups[0]["lr"] < 0.05


def test_checkpoints_are_plain_and_carry_the_transform(tmp_path):
    model = classifier(label_smoothing=0.1)
    fit = trainer(tmp_path, checkpoint(tmp_path))
    fit.fit(model, *loaders())
    content = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert content["data_config"]["input_size"] == (3, 4, 4)

    fresh = Net()
    load_weights(fresh, tmp_path / "last.ckpt")
    assert weights_sha256(fresh) == weights_sha256(model.backbone.net)
    backbone = module_backbone(Net(), "fc", weights=tmp_path / "last.ckpt")
    assert backbone.data_config == model.backbone.data_config
    with pytest.raises(UserError, match="allow_transform_mismatch"):
        module_backbone(Net(), "fc", weights=tmp_path / "last.ckpt", mean=0.1)


class Killed(Exception):
    pass


class Kill(Callback):
    """Ends the training in the middle of its second epoch."""

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if trainer.global_step == 3:
            raise Killed


@pytest.mark.parametrize("averaged", [False, True])
@pytest.mark.parametrize("interval", ["step", "epoch"])
def test_a_killed_training_resumes_to_the_same_weights(tmp_path, interval, averaged):
    options = {
        "scheduler": torch.optim.lr_scheduler.CosineAnnealingLR,
        "scheduler_interval": interval,
    }

    def callbacks():
        ema = [EMAWeightAveraging(decay=0.5)] if averaged else []
        return [checkpoint(tmp_path), *ema]

    whole = classifier(**options)
    trainer(tmp_path, *callbacks()).fit(whole, *loaders())
    with pytest.raises(Killed):
        trainer(tmp_path, Kill(), *callbacks()).fit(classifier(**options), *loaders())
    resumed = classifier(lr=0.9, **options)
    trainer(tmp_path, *callbacks()).fit(resumed, *loaders(), ckpt_path=tmp_path / "last.ckpt")
    assert weights_sha256(resumed) == weights_sha256(whole)


def test_averaged_weights_are_what_a_checkpoint_holds(tmp_path):
    raw = []

    class Raw(EMAWeightAveraging):
        def on_train_batch_end(self, trainer, module, *args):
            super().on_train_batch_end(trainer, module, *args)
            raw.append(module.backbone.net.fc.weight.detach().clone())

    model = classifier()
    trainer(tmp_path, Raw(decay=0.5), checkpoint(tmp_path)).fit(model, *loaders())
    average = raw[0]
    for weight in raw[1:]:
        average = 0.5 * average + 0.5 * weight
    fresh = Net()
    load_weights(fresh, tmp_path / "last.ckpt")
    torch.testing.assert_close(fresh.fc.weight, average)
    assert not torch.allclose(fresh.fc.weight, raw[-1], atol=1e-4)
    assert weights_sha256(fresh) == weights_sha256(model.backbone.net)


def test_a_diverging_training_stops_with_step_and_rate(tmp_path):
    model = classifier(lr=1e30)
    with pytest.raises(UserError, match=r"loss is nan at step \d+ .*learning rate 1e\+30"):
        trainer(tmp_path).fit(model, *loaders())


class TwoTerms(Classifier):
    """A method with a second loss and two learning rates."""

    def __init__(self, *args, extra, weight=0.5, **options):
        super().__init__(*args, **options)
        self.extra, self.weight = extra, weight

    def losses(self, outputs, batch):
        penalty = self.weight * outputs.features.pow(2).mean()
        return super().losses(outputs, batch) | {"norm": penalty}

    def parameter_groups(self):
        head = set(self.backbone.head.parameters())
        rest = [p for p in self.parameters() if p not in head]
        return [{"params": list(head), "lr": 0.1}, {"params": rest}]


def test_methods_override_losses_and_groups(tmp_path):
    model = classifier(TwoTerms, extra=nn.Identity())
    fit = trainer(tmp_path, checkpoint(tmp_path))
    fit.fit(model, *loaders())
    logged = fit.callback_metrics
    torch.testing.assert_close(logged["val/loss"], logged["val/loss_ce"] + logged["val/loss_norm"])
    assert [g["lr"] for g in fit.optimizers[0].param_groups] == [0.1, 0.05]


def test_channels_last_trains_the_same_network(tmp_path):
    weights = []
    for channels_last in (False, True):
        model = classifier(channels_last=channels_last)
        assert model.backbone.net.conv.weight.is_contiguous() is not channels_last
        trainer(tmp_path).fit(model, *loaders())
        assert model.backbone.net.conv.weight.is_contiguous() is not channels_last
        weights.append(model.state_dict())
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-5, atol=1e-6)


def test_weights_are_known_by_their_values_whatever_their_layout():
    plain, other = classifier(), classifier(channels_last=True)
    assert weights_sha256(plain.backbone) == weights_sha256(other.backbone)
