"""Two processes train to the same weights and metrics as one."""

import functools
import math

import pytest
import torch
from lightning.pytorch import Trainer, seed_everything
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

from ood_lab.models import Classifier, module_backbone


@pytest.fixture(autouse=True)
def _one_thread():
    """Forked processes hang in OpenMP when their parent has used its threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Noise(Dataset):
    images = torch.randn(16, 3, 4, 4, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return 16

    def __getitem__(self, index):
        return {"image": self.images[index], "label": index % 3}


def train(processes: int, validated: Dataset) -> dict[str, float]:
    seed_everything(0, verbose=False)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.ReLU(), nn.Linear(16, 3))
    backbone = module_backbone(net, "3", input_size=4, mean=0.5, std=0.5)
    model = Classifier(backbone, functools.partial(torch.optim.SGD, lr=0.1))
    trainer = Trainer(
        accelerator="cpu", devices=processes, strategy="ddp_fork" if processes > 1 else "auto",
        max_epochs=3, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=0,
    )  # fmt: skip
    loader, val = (DataLoader(data, batch_size=16 // processes) for data in (Noise(), validated))
    trainer.fit(model, loader, val)
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    return {k: float(v) for k, v in trainer.callback_metrics.items()} | {
        "weights": float(weights.double().square().sum())
    }


@pytest.mark.parametrize("n", [16, 15, 17])  # 17: a device has one batch of repeated images
def test_two_processes_equal_one(n):
    validated = Subset(Noise(), [*range(16), 0][:n])
    one, two = train(1, validated), train(2, validated)
    assert one.keys() == two.keys()
    for key, value in one.items():
        assert math.isclose(value, two[key], rel_tol=1e-5), key


def test_a_loss_that_is_nan_in_one_process_ends_both(monkeypatch):
    images = Noise.images.clone()
    images[0] = float("nan")  # seen by one process only
    monkeypatch.setattr(Noise, "images", images)
    with pytest.raises(Exception, match="training loss is"):
        train(2, Noise())
