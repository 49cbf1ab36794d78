"""What all six fine-grained methods keep, each as its YAML file builds it."""

import functools
import json
import math
from pathlib import Path
from unittest import mock

import pytest
import torch
from cli import call, run_folders
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, Dataset
from waves import TINY

from ood_lab.models import load_weights, saved_entry, train_transform, weights_sha256
from ood_lab.models.fgvc import P2P
from ood_lab.run.commandline.resolvers import register_resolvers

CONF = str(Path(__file__).parents[3] / "conf")
METHODS = ("nts", "sps", "p2p", "yourfl", "hrn", "akg")
LABELS = {
    "level_sizes": [2, 4],
    "parents": [[0, 0, 1, 1]],
    "categories": 2,
    "shapes": 3,
    "attributes": 5,
}
SIZE = 64


@functools.cache
def composed(name, *overrides):
    register_resolvers()
    with initialize_config_dir(version_base="1.3", config_dir=CONF):
        return compose("train", [f"model={name}", f"model.kwargs={json_free(TINY)}", *overrides])


def json_free(value):
    """As Hydra's command line wants it: without quotes."""
    return json.dumps(value).replace('"', "").replace(" ", "")


def network(name):
    model = composed(name, f"model.backbone.input_size={SIZE}").model
    return instantiate(model.backbone, num_classes=4, labels=LABELS)


def built(name, dropout=True, **settings):
    """The module, freshly made."""
    seed_everything(0, verbose=False)
    net = network(name)
    if not dropout:
        for part in net.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
    model = composed(name, f"model.backbone.input_size={SIZE}").model
    return instantiate(model.classifier, **settings)(backbone=net)


class Images(Dataset):
    """Noise with every kind of label; ``times`` repeats each image."""

    def __init__(self, n=8, times=1):
        self.times = times
        generator = torch.Generator().manual_seed(0)
        self.images = torch.randn(n, 3, SIZE, SIZE, generator=generator)

    def __len__(self):
        return self.times * len(self.images)

    def __getitem__(self, index):
        i = index // self.times
        label = i % 4
        return {
            "image": self.images[i],
            "index": index,
            "label": label,
            "levels": torch.tensor([label // 2, label]),
            "category": i % 2,
            "shape": i % 3,
            "attributes": torch.tensor([i % 2, 1, 0, 1, i % 3 == 0]).long(),
        }


def batch(n=8):
    return next(iter(DataLoader(Images(n), batch_size=n)))


def trainer(*callbacks, **options):
    return Trainer(
        accelerator="cpu", logger=False, callbacks=list(callbacks) or None,
        enable_checkpointing=bool(callbacks), enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=0, **{"devices": 1, **options},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_head_and_determinism_in_eval(name):
    net = network(name).eval()
    image = batch()["image"]
    with torch.no_grad():
        logits, features = net(image)
        again = net(image)
        head = net.head
        torch.testing.assert_close(head(features), logits)
        torch.testing.assert_close(features @ head.weight.T + head.bias, logits)
        torch.testing.assert_close(again.features, features, rtol=0, atol=0)
        torch.testing.assert_close(net.train_outputs(image).logits, logits)
        torch.testing.assert_close(net(image[:1]).logits, logits[:1], rtol=1e-4, atol=1e-5)
    assert logits.shape == (8, 4)


@pytest.mark.parametrize("precision", ["32", "bf16"])
@pytest.mark.parametrize(
    ("name", "settings"), [*((name, {}) for name in METHODS), ("sps", {"detach_epoch": 0})]
)
def test_every_parameter_learns_from_finite_losses(name, settings, precision):
    module, data = built(name, **settings), batch()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        terms = module.losses(module.outputs(data), data)
    assert len(terms) > 1
    assert all(term.ndim == 0 and bool(term.isfinite()) for term in terms.values())
    sum(terms.values()).backward()
    for key, parameter in module.named_parameters():
        assert parameter.grad is not None, key
        assert bool(parameter.grad.isfinite().all()), key
    trunk = list(module.backbone.trunk.parameters())
    assert trunk[0].grad.abs().sum() > 0  # deeper ones may wait for a scale that starts at 0
    groups = module.parameter_groups()
    assert groups[0]["params"] == trunk
    assert sum(len(group["params"]) for group in groups) == len(list(module.parameters()))


@pytest.mark.parametrize("name", METHODS)
def test_checkpoints_rebuild_the_network(tmp_path, name):
    module = built(name)
    fit = trainer(ModelCheckpoint(tmp_path, filename="last"), max_epochs=1)
    loader = DataLoader(Images(), batch_size=4)
    fit.fit(module, loader, loader)
    logged = fit.callback_metrics
    for stage in ("train", "val"):
        terms = [v for k, v in logged.items() if k.startswith(f"{stage}/loss_")]
        torch.testing.assert_close(sum(terms), logged[f"{stage}/loss"])
    file = tmp_path / "last.ckpt"
    model = composed(name, f"model.backbone.input_size={SIZE}").model
    again = instantiate(model.backbone, num_classes=4, labels=saved_entry(file, "labels"))
    assert weights_sha256(again) != weights_sha256(module.backbone)
    load_weights(again, file)
    assert weights_sha256(again) == weights_sha256(module.backbone)
    image = batch()["image"]
    with torch.no_grad():
        expected = module.eval()(image).logits
        torch.testing.assert_close(again.eval()(image).logits, expected, rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_eight_images_are_learnt_by_heart(name):
    module, data = built(name, dropout=False), batch()
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-3, weight_decay=0.0)
    first = None
    for _ in range(60):
        outputs = module.outputs(data)
        total = sum(module.losses(outputs, data).values())
        first = first or total.item()
        if bool((outputs.logits.argmax(1) == data["label"]).all()) and total < 0.7 * first:
            return
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
    pytest.fail(f"{name} has not learnt 8 images: loss {first:.2f} -> {total:.2f}")


def fitted(name, processes):
    """Eight images in each process, or twice in the one: batch norm sees the same."""
    torch.set_num_threads(1)  # forked processes hang in the threads of their parent
    module = built(name, dropout=False)
    # Adam would turn gradients that are 0 but for rounding into full steps.
    module.optimizer_factory = functools.partial(torch.optim.SGD, lr=1e-2)
    if name == "sps":
        module.backbone.swap = (0.0, 0.0)  # permutations of 16 images and of 8 differ
    strategy = "ddp_fork" if processes > 1 else "auto"
    options = {"devices": processes, "strategy": strategy, "use_distributed_sampler": False}
    fit = trainer(max_epochs=2, **options)
    fit.fit(module, DataLoader(Images(8, times=2 // processes), batch_size=16))
    logged = {k: float(v) for k, v in fit.callback_metrics.items()}
    for key, value in module.backbone.state_dict().items():
        if "memory" in key:
            logged[key] = value.double().norm().item()
    # One by one, weights that start at 0 differ by rounding alone.
    logged["weights"] = sum(p.square().sum().item() for p in module.parameters())
    return logged


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["p2p", *(pytest.param(n, marks=pytest.mark.slow) for n in METHODS if n != "p2p")]
)
def test_two_processes_equal_one(name):
    one, two = fitted(name, 1), fitted(name, 2)
    assert one.keys() == two.keys()
    assert len(one) > 3
    for key, value in one.items():
        assert math.isclose(value, two[key], rel_tol=5e-4), key


OFFICIAL = {  # epochs, batch size, learning rates of trunk and new layers, crop
    "nts": (499, 16, (None, 1e-3), 448),
    "sps": (160, 16, (1e-3, 1e-2), 448),
    "p2p": (300, 16, (2e-4, 2e-3), 448),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OFFICIAL)
def test_official_settings(name):
    cfg = composed(name, "preset=official")
    epochs, size, (trunk, rest), crop = OFFICIAL[name]
    assert (cfg.trainer.max_epochs, cfg.data.batch_size) == (epochs, size)
    assert (cfg.model.classifier.trunk_lr, cfg.model.classifier.optimizer.lr) == (trunk, rest)
    assert cfg.model.trunk == "resnet50.tv_in1k"
    backbone = mock.Mock()
    size = {"input_size": (3, 64, 64)}
    backbone.data_config = size | {"mean": (0.5,) * 3, "std": (0.5,) * 3}
    geometry, augment = (
        [instantiate(step) for step in cfg.model[key]] for key in ("geometry", "augment")
    )
    steps = train_transform(backbone, augment, geometry).transforms
    names = ["Resize", "RandomCrop", "RandomHorizontalFlip", "ToTensor", "Normalize"]
    assert [type(step).__name__ for step in steps] == names
    assert steps[1].size == (crop, crop)
    scaled = math.floor(crop / cfg.model.backbone.crop_pct)
    assert tuple(steps[0].size) == (scaled, scaled)  # training and test agree


@pytest.mark.slow
def test_a_killed_run_resumes_with_the_centres(tmp_path, capsys):
    arguments = ["train.py", "task=score", "model=p2p", "experiment=smoke", "trainer.max_epochs=2"]
    arguments += ["trainer.gradient_clip_val=1", "detector=[msp]", "logger=none"]
    arguments += [f"model.kwargs={json_free(TINY)}", f"paths.outputs={tmp_path}"]

    def dies(self):
        if self.current_epoch == 1:
            raise RuntimeError("killed")

    with mock.patch.object(P2P, "on_train_epoch_start", dies), pytest.raises(RuntimeError):
        call(*arguments)
    assert not run_folders(tmp_path)
    assert call(*arguments) == 0
    (folder,) = run_folders(tmp_path)
    state = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    assert state["epoch"] == 1
    steps = 240 // 64
    assert state["state_dict"]["backbone.memory.count"] == 2 * steps * 64
    assert state["state_dict"]["backbone.memory.centres"].sum() > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_train_and_eval_from_the_command_line(tmp_path, name):
    small = ["experiment=smoke", "detector=[msp]", "logger=none", f"paths.outputs={tmp_path}"]
    train = [f"model={name}", f"model.kwargs={json_free(TINY)}", "callbacks=ema", *small]
    assert call("train.py", "task=score", "trainer.gradient_clip_val=1", *train) == 0
    (folder,) = run_folders(tmp_path)
    assert call("eval.py", f"ckpt={folder}", "name=again", *small) == 0
    results = [(f / "results.csv").read_text() for f in run_folders(tmp_path)]
    assert results[0] == results[1]
