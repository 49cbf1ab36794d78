"""Weights from files: every layout that should load does, and nothing else."""

import argparse
import copy
import functools
import hashlib
import logging
import os

import numpy as np
import pytest
import torch
from lightning.fabric.utilities.data import AttributeDict
from safetensors.torch import save_file
from torch import nn

from ood_lab.common.errors import UserError
from ood_lab.models import load_weights, module_backbone, timm_backbone, weights_sha256
from ood_lab.models.weights import new_layers


class Net(nn.Module):
    def __init__(self, classes=4, width=6):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3)
        self.norm = nn.BatchNorm2d(width)
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        return self.fc(self.norm(self.conv(x)).mean((2, 3)))


class Nested(nn.Module):
    """A network whose own names look like a prefix."""

    def __init__(self):
        super().__init__()
        self.model = Net()
        self.fc = nn.Linear(4, 4)


def wrapped(net):
    return module_backbone(net, "fc", input_size=16, mean=0.5, std=0.5)


def equal(a, b):
    return all(torch.equal(a[k], b[k]) for k in a) and a.keys() == b.keys()


def prefixed(net, prefix):
    return {prefix + k: v for k, v in net.state_dict().items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "prefix",
    ["", "module.", "model.", "_orig_mod.", "net.", "backbone.", "backbone.net.", "module.model.",
     "_orig_mod.module.", "module._orig_mod.model.net.", "encoder.", "module.encoder_q.",
     "the_network."],
)  # fmt: skip
@pytest.mark.parametrize("wrapper", [None, "state_dict", "model", "state_dict_ema"])
def test_prefixes_and_wrappers_round_trip(tmp_path, prefix, wrapper):
    source = Net()
    state = prefixed(source, prefix)
    torch.save(state if wrapper is None else {wrapper: state, "epoch": 3}, tmp_path / "w.pth")
    for target in (Net(), wrapped(Net())):
        assert load_weights(target, tmp_path / "w.pth") == {}
        net = getattr(target, "net", target)
        assert equal(net.state_dict(), source.state_dict())


def test_safetensors(tmp_path):
    source, target = Net(), Net()
    save_file(prefixed(source, "module."), tmp_path / "w.safetensors")
    load_weights(target, tmp_path / "w.safetensors")
    assert equal(target.state_dict(), source.state_dict())


def test_names_that_look_like_prefixes_stay(tmp_path):
    source, target = Nested(), Nested()
    torch.save(prefixed(source, "model."), tmp_path / "w.pt")
    load_weights(target, tmp_path / "w.pt")
    assert equal(target.state_dict(), source.state_dict())


def test_averaged_weights_are_preferred(tmp_path):
    raw, averaged, target = Net(), Net(), Net()
    checkpoint = {"state_dict": raw.state_dict(), "state_dict_ema": averaged.state_dict()}
    torch.save(checkpoint, tmp_path / "w.pt")
    load_weights(target, tmp_path / "w.pt")
    assert equal(target.state_dict(), averaged.state_dict())


def test_other_parts_of_a_training_module_are_left_alone(tmp_path):
    source, target = Net(), Net()
    extra = {"criterion.weight": torch.ones(4), "n_averaged": torch.tensor(5)}
    torch.save({"state_dict": prefixed(source, "model.") | extra}, tmp_path / "w.ckpt")
    load_weights(target, tmp_path / "w.ckpt")
    assert equal(target.state_dict(), source.state_dict())


def test_dtype_of_the_module_stays(tmp_path):
    torch.save(Net().half().state_dict(), tmp_path / "w.pt")
    target = Net()
    load_weights(target, tmp_path / "w.pt")
    assert target.fc.weight.dtype == torch.float32


def test_files_without_batch_counters_load(tmp_path):
    source, target = Net(), Net()
    state = {k: v for k, v in source.state_dict().items() if "num_batches" not in k}
    torch.save(state, tmp_path / "w.pt")
    load_weights(target, tmp_path / "w.pt")
    assert torch.equal(target.conv.weight, source.conv.weight)


def without(state, key):
    return {k: v for k, v in state.items() if k != key}


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (Net(classes=9).state_dict(), "2 of 9 tensors have another shape, first fc.weight [9, 6] in"
         " the file against [4, 6]; is it a checkpoint for 9 classes instead of 4?"),
        (Net(width=7).state_dict(), "another shape, first conv.weight [7, 3, 3, 3] in the file "
         "against [6, 3, 3, 3]; is it a checkpoint of another architecture?"),
        (without(Net().state_dict(), "fc.bias"), "1 of 8 tensors are not in the file, first fc.bias"
         "; is 'fc' its head? model.backbone.new_head=true gives train.py a fresh one"),
        (Net().state_dict() | {"aux": torch.ones(1)}, "1 tensors of the file have no place"),
        (prefixed(Net(), "encoder_q.") | prefixed(Net(), "encoder_k."),
         "holds several such networks, 'encoder_k' and 'encoder_q': choose one with model"),
        (nn.Linear(2, 2).state_dict(), "8 of 8 tensors are not in the file"),
        ({"epoch": 3}, "no state dict (its entries: epoch)"),
        ([torch.ones(2)], "holds a list"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_one_line(tmp_path, state, says):
    torch.save(state, tmp_path / "w.pt")
    target = Net()
    before = copy.deepcopy(target.state_dict())
    with pytest.raises(UserError) as refusal:
        load_weights(target, tmp_path / "w.pt")
    message = str(refusal.value)
    assert says in message
    assert "w.pt" in message
    assert "\n" not in message
    assert equal(target.state_dict(), before)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_diverged_weights_name_the_tensor(tmp_path, value):
    source = Net()
    source.norm.running_var[2] = value
    torch.save(source.state_dict(), tmp_path / "w.pt")
    with pytest.raises(UserError, match=r"1 of 6 values of norm\.running_var"):
        load_weights(Net(), tmp_path / "w.pt")


@pytest.mark.parametrize(
    "content", [Net(), {"state_dict": {}, "optimizer": functools.partial(torch.optim.SGD, lr=1)}]
)
def test_pickled_objects_are_refused_by_name(tmp_path, content):
    torch.save(content, tmp_path / "w.pt")
    name = "functools.partial" if isinstance(content, dict) else r"test_weights\.Net"
    with pytest.raises(UserError, match=rf"pickled objects \(\S*{name}\)"):
        load_weights(Net(), tmp_path / "w.pt")


class Dangerous:
    """Whoever unpickles it runs a command."""

    def __reduce__(self):
        return os.mkdir, ("ran",)


def test_weights_are_read_and_objects_beside_them_are_not(tmp_path, monkeypatch, caplog):
    """A Lightning checkpoint with whatever save_hyperparameters() was given."""
    monkeypatch.chdir(tmp_path)
    settings = AttributeDict(net=Net(), args=argparse.Namespace(a=1), path=tmp_path, bad={1, 2})
    source, target = Net(), Net()
    content = {
        "hyper_parameters": settings | {"bad": Dangerous()},
        "optimizer": functools.partial(torch.optim.SGD, lr=1),
        "numpy": np.float64(2),
        "state_dict": prefixed(source, "net.") | {"loss.weight": torch.ones(3)},
    }
    torch.save(content, "w.ckpt")
    with caplog.at_level("INFO"):
        load_weights(target, "w.ckpt")
    assert equal(target.state_dict(), source.state_dict())
    assert "are skipped" in caplog.text
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"cut"])
def test_damaged_files(tmp_path, suffix, content):
    path = tmp_path / f"w{suffix}"
    if content == b"cut":
        save = save_file if suffix == ".safetensors" else torch.save
        save(Net().state_dict(), path)
        content = path.read_bytes()[:-900]
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"damaged or not a PyTorch checkpoint"):
        load_weights(Net(), path)


def test_a_file_cut_short_is_told_as_such(tmp_path):
    """Of some lengths, PyTorch says "Invalid argument", as of a file that cannot be opened."""
    path = tmp_path / "w.pt"
    torch.save({"stem.weight": torch.zeros(300, 300)}, path)
    whole = path.read_bytes()
    for size in (8192, 40_000, 65_536, 200_000):
        path.write_bytes(whole[:size])
        with pytest.raises(UserError, match=rf"w\.pt \({size:,} bytes\) is cut short, damaged or"):
            load_weights(Net(), path)


def test_missing_files_name_the_nearest(tmp_path):
    torch.save({}, tmp_path / "resnet18.pt")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UserError, match=r"does not exist; nearest: .*resnet18\.pt'$"):
        load_weights(Net(), tmp_path / "resnet81.pt")
    with pytest.raises(UserError, match=r"is a folder.*resnet18\.pt$"):
        load_weights(Net(), tmp_path)
    with pytest.raises(UserError, match=r"does not exist; in .* there is: notes\.txt"):
        load_weights(Net(), tmp_path / "no" / "w.pt")


def test_a_head_for_other_classes_is_new_where_that_is_allowed(tmp_path, caplog):
    caplog.set_level(logging.INFO, "ood_lab")
    torch.save(Net(classes=9).state_dict(), tmp_path / "w.pt")
    assert new_layers(tmp_path / "w.pt", Net(classes=9), ["fc"], None) == ()
    assert new_layers(tmp_path / "w.pt", Net(), ["fc"], False) == ()
    assert not caplog.text
    assert new_layers(tmp_path / "w.pt", Net(), ["fc"], None) == ["fc"]
    assert "w.pt: its head 'fc' is for 9 classes, the data has 4: a new head is" in caplog.text


def test_a_new_head_keeps_fresh_weights(tmp_path):
    source = Net(classes=9)
    torch.save(prefixed(source, "module."), tmp_path / "w.pt")
    target = Net(classes=4)
    head = target.fc.weight.clone()
    load_weights(target, tmp_path / "w.pt", new_head="fc")
    assert torch.equal(target.conv.weight, source.conv.weight)
    assert torch.equal(target.fc.weight, head)


def test_timm_models_load_their_own_files_and_refuse_others(tmp_path):
    options = {"kwargs": {"layers": (1, 1, 1, 1), "channels": (8, 8, 8, 8)}}
    source = timm_backbone("resnet18", 5, **options)
    torch.save(source.net.state_dict(), tmp_path / "five.pt")
    again = timm_backbone("resnet18", 5, weights=tmp_path / "five.pt", **options)
    assert weights_sha256(again) == weights_sha256(source)
    with pytest.raises(UserError, match=r"five\.pt does not fit resnet18: .* 5 classes instead"):
        timm_backbone("resnet18", 6, weights=tmp_path / "five.pt", **options)
    fresh = timm_backbone("resnet18", 6, weights=tmp_path / "five.pt", new_head=True, **options)
    assert fresh.head.out_features == 6
    assert torch.equal(fresh.net.conv1.weight, source.net.conv1.weight)
    with pytest.raises(UserError, match=r"does not fit resnet26: .* not in the file"):
        timm_backbone("resnet26", 5, weights=tmp_path / "five.pt", **options)


def test_sha256_is_the_hash_of_names_types_shapes_and_bytes():
    net = nn.Linear(2, 1)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.0, 2.0]]))
        net.bias.zero_()
    written = (
        b"bias torch.float32 [1];" + bytes(4)
        + b"weight torch.float32 [1, 2];" + b"\x00\x00\x80\x3f\x00\x00\x00\x40"
    )  # fmt: skip
    assert weights_sha256(net) == hashlib.sha256(written).hexdigest()


def test_sha256_sees_every_change_and_nothing_else():
    net = Net()
    digest = weights_sha256(net)
    assert weights_sha256(copy.deepcopy(net).to(memory_format=torch.channels_last)) == digest
    changes = [
        lambda n: n.norm.running_mean.add_(1e-7),
        lambda n: n.norm.num_batches_tracked.add_(1),
        lambda n: n.fc.weight.data[0].neg_(),
        lambda n: n.to(torch.bfloat16),
    ]
    digests = {digest}
    for change in changes:
        other = copy.deepcopy(net)
        change(other)
        digests.add(weights_sha256(other))
    assert len(digests) == 1 + len(changes)
