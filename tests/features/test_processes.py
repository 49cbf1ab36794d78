"""The same numbers from one, two and three processes."""

import pytest
import torch
from feature_toys import PRIME, GradientStep, MapPower, TinyBackbone, TinyImages, make_trainer

from ood_lab.errors import UserError
from ood_lab.features.extract import extract


def several(devices):
    return make_trainer(devices=devices, strategy="ddp_fork" if devices > 1 else "auto")


@pytest.mark.parametrize("devices", [2, 3])
def test_the_same_numbers_from_several_processes(backbone, images, tmp_path, devices):
    columns = [MapPower(), GradientStep()]
    one = extract(several(1), backbone, images, tmp_path / "1", columns, batch_size=4)
    many = extract(several(devices), backbone, images, tmp_path / "n", columns, batch_size=4)
    assert len(many.manifest["shards"]) == devices
    assert sorted(many.manifest["shards"].values())[-1] == -(-PRIME // devices)
    assert many.index.tolist() == one.index.tolist() == list(range(PRIME))
    assert torch.equal(many.labels, one.labels)
    torch.testing.assert_close(many.features, one.features)
    torch.testing.assert_close(many.logits, one.logits)
    for column in columns:
        torch.testing.assert_close(many.columns[column.key], one.columns[column.key])


def test_several_sets_with_one_trainer_and_a_column_later(backbone, tmp_path):
    trainer = several(2)
    for name, n in {"train": 7, "far": 3}.items():
        images = TinyImages(n, name, name)
        extract(trainer, backbone, images, tmp_path)
        bank = extract(trainer, backbone, images, tmp_path, [MapPower()])
        assert bank.columns["map-power(power=2)"].shape == (n, 6)
    assert backbone.forwards == 0  # all of them happened in the other processes


def test_fewer_images_than_processes(backbone, tmp_path):
    with pytest.raises(UserError, match=r"'few' has 2 images for 3 processes: lower"):
        extract(several(3), backbone, TinyImages(2, "few"), tmp_path)


def test_an_error_in_another_process_stays_one_line(images, tmp_path):
    images.images[7] = float("nan")
    with pytest.raises(UserError, match=r"^\w+ of 'test' are not finite in rows \[7\][^\n]+$"):
        extract(several(2), TinyBackbone(), images, tmp_path)
    assert not list(tmp_path.glob(".partial/*"))
