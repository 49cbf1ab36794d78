"""Extraction in one process: the numbers, what is computed when, what is refused."""

import logging
import shutil
from types import SimpleNamespace

import pytest
import torch
from bank_extraction import extract
from feature_toys import (
    COUNTED,
    PRIME,
    GradientStep,
    MapPower,
    TinyBackbone,
    TinyImages,
    make_trainer,
)
from lightning.pytorch import Callback

from ood_lab.common.errors import UserError
from ood_lab.features import bank_store
from ood_lab.features.bank_store import FeatureWriter, load
from ood_lab.features.lightning_extractor import ExtractionProgressBar


def by_hand(backbone, images):
    """Features, logits, map powers and gradient steps, one image at a time, with plain autograd."""
    backbone.eval()
    rows = []
    for picture in images.images:
        image = picture[None].clone().requires_grad_()
        maps = backbone.conv(image)
        features = backbone.norm(maps).relu().mean((2, 3))
        logits = features @ backbone.head.weight.T + backbone.head.bias
        logits.max().backward()
        moved = backbone(picture[None] + image.grad).logits.max()
        rows.append((features[0], logits[0], (maps * maps).mean((2, 3))[0], moved))
    return [torch.stack(column).detach() for column in zip(*rows, strict=True)]


def test_numbers_equal_a_plain_forward(trainer, backbone, images, tmp_path):
    bank = extract(trainer, backbone, images, tmp_path, [MapPower(), GradientStep()], batch_size=5)
    features, logits, powers, steps = by_hand(backbone, images)
    torch.testing.assert_close(bank.features, features)
    torch.testing.assert_close(bank.logits, logits)
    torch.testing.assert_close(bank.columns["map-power(power=2)"], powers)
    torch.testing.assert_close(bank.columns["gradient-step/1.0"], steps)
    assert bank.labels.tolist() == images.table["label"].tolist()
    assert bank.index.tolist() == list(range(PRIME))
    torch.testing.assert_close(bank.features @ bank.head_weight.T + bank.head_bias, bank.logits)
    assert bank.record.n == PRIME
    assert bank.record.dataset == "test"
    assert bank.record.columns == ["map-power(power=2)", "gradient-step/1.0"]


def test_second_call_reads_and_does_no_forward(trainer, backbone, images, tmp_path, caplog):
    caplog.set_level(logging.INFO, "ood_lab")
    first = extract(trainer, backbone, images, tmp_path, [MapPower()], batch_size=6, **COUNTED)
    assert backbone.forwards == 1 + 4  # the first is of one image, for its activations
    assert first.groups is None
    images.groups = torch.arange(PRIME) // 3  # of the table: no forward finds them
    second = extract(make_trainer(), backbone, images, tmp_path, [MapPower()], **COUNTED)
    assert backbone.forwards == 1 + 4
    assert torch.equal(first.features, second.features)
    assert torch.equal(second.groups, images.groups)
    assert torch.equal(first.columns["map-power(power=2)"], second.columns["map-power(power=2)"])
    assert [record.message.split(":")[1].split()[0] for record in caplog.records] == ["23", "read"]


def test_a_column_is_added_without_the_base(trainer, backbone, images, tmp_path):
    bank = extract(trainer, backbone, images, tmp_path, [MapPower(2)], batch_size=PRIME)
    folder = tmp_path / bank.record.key
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*.*")}
    columns = [MapPower(2), MapPower(3), GradientStep(), GradientStep(0.5)]
    bank = extract(trainer, backbone, images, tmp_path, columns, batch_size=PRIME)
    assert before == {path: path.stat().st_mtime_ns for path in folder.glob("*.*")}
    assert list(bank.columns) == [column.key for column in columns]
    together = extract(trainer, backbone, images, tmp_path / "other", columns)
    for column in columns:
        assert torch.equal(bank.columns[column.key], together.columns[column.key])
    keys = [column.key for column in columns]
    assert list(load(folder, keys).columns) == keys
    assert load(folder, []).columns == {}


def test_one_pass_for_everything(trainer, backbone, images, tmp_path):
    extract(trainer, backbone, images, tmp_path, [MapPower(2), MapPower(3)], **COUNTED)
    assert backbone.forwards == 1 + 1
    backbone.forwards = 0
    # The pass itself, whose graph both columns share, and the step of each.
    columns = [GradientStep(1.0), GradientStep(2.0)]
    extract(trainer, backbone, images, tmp_path / "other", columns, **COUNTED)
    assert backbone.forwards == 1 + 3


@pytest.mark.parametrize("batch_size", [1, 5])
def test_numbers_do_not_depend_on_the_batch_size(
    trainer, backbone, images, tmp_path, batch_size, monkeypatch
):
    columns = [MapPower(), GradientStep()]
    whole = extract(trainer, backbone, images, tmp_path / "a", columns, batch_size=PRIME)
    monkeypatch.setattr(FeatureWriter, "shard_bytes", 300)  # several shards
    parts = extract(trainer, backbone, images, tmp_path / "b", columns, batch_size=batch_size)
    assert len(parts.record.shards) > 1
    torch.testing.assert_close(whole.features, parts.features)
    torch.testing.assert_close(whole.logits, parts.logits)
    for column in columns:
        torch.testing.assert_close(whole.columns[column.key], parts.columns[column.key])


def test_what_changes_the_numbers_changes_the_bank(trainer, backbone, images, tmp_path):
    keys = set()

    def key(**changes):
        settings = {"trainer": trainer, "backbone": backbone, "dataset": images, **changes}
        bank = extract(root=tmp_path, **settings)
        keys.add(bank.record.key)
        return len(keys)

    assert key() == 1
    assert key(dataset=TinyImages(name="renamed")) == 1
    assert key(dataset=TinyImages(identity="b")) == 2
    cropped = TinyImages()
    cropped.transform = "CenterCrop(7)"
    assert key(dataset=cropped) == 3
    assert key(trainer=make_trainer(precision="bf16-mixed")) == 4
    with torch.no_grad():
        backbone.conv.weight[0, 0, 0, 0] += 1e-3
    assert key() == 5
    backbone.norm.eps = 1e-2
    assert key() == 6


def test_the_backbone_is_left_as_it_was(trainer, backbone, images, tmp_path):
    backbone.train()
    backbone.norm.eval()
    backbone.conv.weight.requires_grad_(False)
    extract(trainer, backbone, images, tmp_path, [MapPower(), GradientStep()])
    assert (backbone.training, backbone.norm.training, backbone.conv.training) == (
        True,
        False,
        True,
    )
    assert not backbone.conv.weight.requires_grad
    assert backbone.head.weight.requires_grad
    assert all(parameter.grad is None for parameter in backbone.parameters())
    assert not backbone.conv._forward_hooks
    assert not any(isinstance(callback, FeatureWriter) for callback in trainer.callbacks)
    assert trainer.predict_loop.inference_mode


def test_autocast_leaves_float32_that_agrees_with_the_head(backbone, images, tmp_path):
    bank = extract(make_trainer(precision="bf16-mixed"), backbone, images, tmp_path, [MapPower()])
    exact = extract(make_trainer(), backbone, images, tmp_path)
    assert bank.features.dtype == bank.logits.dtype == torch.float32
    assert bank.columns["map-power(power=2)"].dtype == torch.float32
    torch.testing.assert_close(bank.features @ bank.head_weight.T + bank.head_bias, bank.logits)
    torch.testing.assert_close(bank.features, exact.features, rtol=0.02, atol=0.02)
    assert not torch.equal(bank.features, exact.features)


def test_features_that_are_not_finite_name_the_rows(trainer, backbone, images, tmp_path):
    images.images[7] = float("nan")
    images.images[9] = float("inf")
    with pytest.raises(UserError, match=r"'test'.*\[7, 9\].*image_7.png, image_9.png"):
        extract(trainer, backbone, images, tmp_path, batch_size=5 * PRIME)
    assert not list(tmp_path.glob("*/manifest.json"))
    assert not list(tmp_path.glob(".partial/*"))
    images.images[7:10] = 0
    assert len(extract(trainer, backbone, images, tmp_path)) == PRIME


def test_a_full_disk_is_foreseen(trainer, backbone, images, tmp_path, monkeypatch):
    def free(size):
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=size))

    base = PRIME * (6 * 4 + 4 * 4 + 16)
    free(base - 1)
    with pytest.raises(UserError, match=f"{base:,} bytes .* but {base - 1:,} are"):
        extract(trainer, backbone, images, tmp_path, **COUNTED)
    assert backbone.forwards == 2  # one image for its activations, and the first batch
    free(base)  # enough for the base, not for a column
    with pytest.raises(UserError, match="'test' needs"):
        extract(trainer, backbone, images, tmp_path, [MapPower()])
    assert len(extract(trainer, backbone, images, tmp_path)) == PRIME


@pytest.mark.parametrize("room", [0, 1])
def test_a_disk_that_fills_up_leaves_nothing(
    trainer, backbone, images, tmp_path, monkeypatch, room
):
    files, save = [], bank_store.save_tensors

    def full(tensors, path):
        if len(files) == room:
            raise OSError(28, "No space left on device")
        files.append(path)
        save(tensors, path)

    monkeypatch.setattr(bank_store, "save_tensors", full)
    with pytest.raises(UserError, match=r"cannot be written under .*No space left.*: make room"):
        extract(trainer, backbone, images, tmp_path)
    assert not list(tmp_path.glob("[!.]*")) + list(tmp_path.glob(".partial/*"))


def test_a_root_that_cannot_be_written(trainer, backbone, images, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot be written under .*file/banks"):
        extract(trainer, backbone, images, tmp_path / "file" / "banks")


@pytest.mark.slow
def test_an_error_in_a_loader_worker_stays_one_line(trainer, backbone, tmp_path):
    class Broken(TinyImages):
        def __getitem__(self, index):
            raise UserError(f"image_{index}.png is truncated: remove it")

    with pytest.raises(UserError, match=r"^image_0.png is truncated: remove it$"):
        extract(trainer, backbone, Broken(), tmp_path, num_workers=1)


@pytest.mark.slow
def test_trainers_that_cannot_give_every_image(backbone, images, tmp_path):
    with pytest.raises(UserError, match=r"limit_predict_batches=1.0"):
        extract(make_trainer(limit_predict_batches=1), backbone, images, tmp_path)
    with pytest.raises(UserError, match=r"precision=64-true would alter"):
        extract(make_trainer(precision="64-true"), backbone, images, tmp_path)


def test_a_transform_must_say_what_it_does(trainer, backbone, images, tmp_path):
    images.transform = lambda image: image
    with pytest.raises(UserError, match=r"transform of 'test' .* __repr__"):
        extract(trainer, backbone, images, tmp_path)


def test_one_trainer_serves_several_sets(trainer, backbone, tmp_path):
    sizes = {"train": 5, "near": 1, "far": 11}
    for name, n in sizes.items():
        images = TinyImages(n, name, name)
        assert len(extract(trainer, backbone, images, tmp_path, [GradientStep()], **COUNTED)) == n
    assert isinstance(backbone, TinyBackbone)
    assert backbone.forwards == 1 + 2 * len(sizes)


def test_the_progress_bar_names_the_set(backbone, images, tmp_path):
    seen = []

    class Look(Callback):
        def on_predict_batch_end(self, trainer, *arguments):
            seen.append(trainer.progress_bar_callback.predict_description)

    callbacks = [ExtractionProgressBar(), Look()]
    trainer = make_trainer(callbacks=callbacks, enable_progress_bar=True)
    extract(trainer, backbone, images, tmp_path)
    assert seen == ["test"]
