"""The YAML files of the model, trainer and callbacks groups, by training with them."""

from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from torch.utils.data import DataLoader, Dataset

from ood_lab.models import load_weights, weights_sha256

CONF = str(Path(__file__).parents[2] / "conf")


class Noise(Dataset):
    def __init__(self, size):
        self.images = torch.randn(8, 3, size, size, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return {"image": self.images[index], "label": index % 3}


def group(file, *overrides):
    with initialize_config_dir(version_base="1.3", config_dir=CONF):
        return next(iter(compose(file, [*overrides]).values()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "overrides", "size"),
    [
        ("resnet10s", [], 64),
        ("timm", ["model.name=test_vit", "model.backbone.input_size=160"], 160),
        (
            "module",
            [
                "model.net._target_=torchvision.models.shufflenet_v2_x0_5",
                "+model.net.num_classes=3",
                "model.head=fc",
                "model.backbone.input_size=32",
            ],
            32,
        ),
    ],
)
def test_every_model_trains_and_its_checkpoint_loads(tmp_path, file, overrides, size):
    model = group(f"model/{file}", *overrides)
    backbone = instantiate(model.backbone, num_classes=3)
    module = instantiate(model.classifier)(backbone=backbone)
    callbacks = dict(instantiate(group("callbacks/ema")))
    del callbacks["progress"]
    for key in ("best", "last"):
        callbacks[key].dirpath = str(tmp_path)
    trainer = instantiate(
        group("trainer/cpu", "trainer.max_epochs=2"),
        callbacks=list(callbacks.values()),
        logger=False,
        enable_progress_bar=False,
    )
    loader = DataLoader(Noise(size), batch_size=4)
    trainer.fit(module, loader, loader)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["best.ckpt", "last.ckpt"]
    again = instantiate(model.backbone, num_classes=3)
    assert weights_sha256(again) != weights_sha256(backbone)
    load_weights(again, tmp_path / "last.ckpt")
    assert weights_sha256(again) == weights_sha256(backbone)


def test_gpu_and_ddp_settings():
    assert group("trainer/gpu").accelerator == "gpu"
    ddp = group("trainer/ddp", "trainer.devices=4")
    assert (ddp.strategy, ddp.devices, ddp.max_epochs) == ("ddp", 4, None)
    assert group("trainer/ddp_cpu").accelerator == "cpu"
