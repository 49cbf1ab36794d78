"""Files with several sets of weights, under other names, in parts, or of another kind."""

import json
import random
import zipfile

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from ood_lab.common.errors import UserError
from ood_lab.models import WeightsFile, load_weights
from ood_lab.models.weights_entries import weights_of


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3)
        self.norm = nn.BatchNorm2d(6)
        self.fc = nn.Linear(6, 4)

    def forward(self, x):
        return self.fc(self.norm(self.conv(x)).mean((2, 3)))


RAW, EMA = (net.state_dict() for net in (Net(), Net()))
LIST = [EMA[name] for name, _ in Net().named_parameters()]


def named(prefix, tensors):
    return {prefix + name: value for name, value in tensors.items()}


def taken(content, path, entry=None, match="name"):
    """The set of weights that a network has after loading."""
    if not isinstance(content, type(path)):
        torch.save(content, path)
    net = Net()
    load_weights(net, WeightsFile(path, entry, match))
    same = [s for s in (RAW, EMA) if all(torch.equal(v, s[k]) for k, v in net.state_dict().items())]
    return "neither" if not same else "raw" if same[0] is RAW else "ema"


LAYOUTS = {
    "timm": ({"state_dict": RAW, "state_dict_ema": EMA}, "state_dict"),
    "ema_state_dict": ({"state_dict": RAW, "ema_state_dict": EMA}, "state_dict"),
    "model_ema": ({"model": RAW, "model_ema": EMA}, "model"),
    "ema": ({"model": RAW, "ema": EMA, "epoch": 3}, "model"),
    "ema_net": ({"ema_net": EMA, "net": RAW}, "net"),
    "shadow": ({"model": RAW, "ema": {"decay": 0.99, "shadow": EMA}}, "model"),
    "swa": ({"model": RAW, "swa_model": named("module.", EMA)}, "model"),
    "averaged": ({"net": RAW, "averaged": {"n_averaged": torch.tensor(3)} | named("module.", EMA)},
                 "net"),
    "ema_model.": ({"state_dict": named("model.", RAW) | named("ema_model.", EMA)}, "model"),
    "ema.module.": ({"state_dict": named("model.", RAW) | named("ema.module.", EMA)}, "model"),
    "ema_pytorch": (named("online_model.", RAW) | named("ema_model.", EMA), "online_model"),
    "lightning": ({"state_dict": named("net.", EMA), "current_model_state": named("net.", RAW)},
                  "current_model_state"),
    "mmengine": ({"meta": {"mmengine_version": "0.10"}, "state_dict": EMA,
                  "ema_state_dict": {"steps": torch.tensor(9)} | named("module.", RAW)},
                 "ema_state_dict"),
    "torch_ema": ({"model": RAW, "ema": {"decay": 0.9, "shadow_params": LIST}}, "model"),
    "shadow_params": ({"model": RAW, "shadow_params": LIST, "collected_params": None}, "model"),
    "nemo": ({"state_dict": RAW, "optimizer_states": [{"ema": LIST, "opt": {"state": {}}}]},
             "state_dict"),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_averaged_weights_are_taken_and_the_others_are_named(name, tmp_path, caplog):
    content, other = LAYOUTS[name]
    path = tmp_path / f"{name.strip('.')}.pt"
    with caplog.at_level("INFO"):
        assert taken(content, path) == "ema"
    assert "averaged (EMA) weights are preferred" in caplog.text
    assert "model.weights_entry=" in caplog.text
    assert taken(content, path, other) == "raw"


def test_an_entry_that_is_not_there_and_several_that_are(tmp_path):
    path = tmp_path / "w.pt"
    with pytest.raises(UserError, match=r"weights_entry=emma: .* has state_dict and state"):
        taken(LAYOUTS["timm"][0], path, "emma")
    pair = named("teacher.", EMA) | named("student_a.", RAW)
    choose = r"several such networks.*weights_entry=(state_dict\.)?student_a"
    with pytest.raises(UserError, match=choose):
        taken({"state_dict": pair}, path)
    assert taken({"state_dict": pair}, path, "student_a") == "raw"
    assert (
        taken({"generator": RAW, "optimizer": {"state": {0: {"m": torch.ones(2)}}}}, path) == "raw"
    )
    assert taken({"state_dict": RAW, "model": dict(RAW)}, path) == "raw"  # twice the same


MARKS = ["_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "module", "net",
         "backbone", "encoder", "student", "model"]  # fmt: skip


@pytest.mark.parametrize("seed", range(25))
def test_wrappers_anywhere_in_a_name(tmp_path, seed):
    draw = random.Random(seed)
    outer, inner = (draw.choices(MARKS, k=draw.randint(0, most)) for most in (3, 2))
    layers = draw.sample(["conv", "norm", "fc"], draw.randint(1, 3))

    def wrapped(name):
        layer, _, rest = name.partition(".")
        return ".".join([*outer, layer, *(inner if layer in layers else []), rest])

    content = {"state_dict": {wrapped(k): v for k, v in RAW.items()}}
    assert taken(content, tmp_path / "w.pt") == "raw"


@pytest.mark.slow
def test_a_part_of_the_network_may_be_compiled(tmp_path):
    torch.save(RAW, tmp_path / "w.pt")
    net = Net()
    net.conv = torch.compile(net.conv)
    load_weights(net, tmp_path / "w.pt")
    assert torch.equal(net.conv.weight, RAW["conv.weight"])


def test_other_names_with_the_same_shapes_are_offered(tmp_path, caplog):
    renamed = {name.replace("conv", "stem.0").replace("fc", "logits"): v for name, v in RAW.items()}
    path = tmp_path / "w.pt"
    with pytest.raises(UserError, match=r"stem\.0\.weight → conv\.weight.*model\.match=shape"):
        taken(renamed, path)
    with caplog.at_level("INFO"):
        assert taken(renamed, path, match="shape") == "raw"
    assert "in their order, by shape" in caplog.text
    with pytest.raises(UserError, match="no weights in"):
        taken({"a": torch.ones(3), "b": torch.ones(2)}, path, match="shape")


def parts(folder):
    files = {
        "m-00001-of-00002.safetensors": ["conv", "norm"],
        "m-00002-of-00002.safetensors": ["fc"],
    }
    where = {}
    for file, layers in files.items():
        tensors = {k: v for k, v in RAW.items() if k.split(".")[0] in layers}
        save_file(tensors, folder / file)
        where |= dict.fromkeys(tensors, file)
    (folder / "m.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    return [*files, "m.safetensors.index.json"]


def test_weights_in_parts_are_read_whole(tmp_path):
    files = parts(tmp_path)
    assert {taken(tmp_path / name, tmp_path / name) for name in files} == {"raw"}
    (tmp_path / files[1]).unlink()
    for name in (files[0], files[2]):
        with pytest.raises(UserError, match=r"one of 2 parts.*00002-of-00002.* is not in"):
            taken(tmp_path / name, tmp_path / name)


@pytest.mark.filterwarnings("ignore")  # of PyTorch, that TorchScript is old
def test_files_of_another_kind_are_named(tmp_path):
    net, image = Net().eval(), torch.ones(2, 3, 8, 8)
    torch.jit.save(torch.jit.script(net), tmp_path / "script.pt")
    torch.export.save(torch.export.export(net, (image,)), tmp_path / "program.pt2")
    torch.save(torch.optim.Adam(net.parameters()).state_dict(), tmp_path / "adam.pt")
    torch.save({"optimizer": {"state": {}}, "epoch": 1}, tmp_path / "optimizer.pt")
    for name, content in {
        "net.onnx": b"\x08\x07", "weights.h5": b"\x89HDF\r\n", "renamed.pth": b"\x89HDF\r\n",
        "lfs.pt": b"version https://git-lfs.github.com/spec/v1\n", "graph.pb": b"\x0a\x05",
        "model.ckpt.index": b"\x00", "model.ckpt.data-00000-of-00001": b"\x00",
    }.items():  # fmt: skip
        (tmp_path / name).write_bytes(content)
    with zipfile.ZipFile(tmp_path / "net.keras", "w") as archive:
        archive.writestr("model.weights.h5", "")
    for name, says in {
        "script.pt": "TorchScript.*torch.jit.load", "program.pt2": "torch.export.*state dict",
        "adam.pt": "state of an optimizer", "optimizer.pt": "state of an optimizer",
        "net.onnx": "ONNX network.*model=exported", "weights.h5": "HDF5", "renamed.pth": "HDF5",
        "lfs.pt": "git lfs pull", "graph.pb": "TensorFlow graph", "net.keras": "Keras network",
        "model.ckpt.index": "TensorFlow", "model.ckpt.data-00000-of-00001": "TensorFlow",
    }.items():  # fmt: skip
        with pytest.raises(UserError, match=says):
            weights_of(WeightsFile(tmp_path / name), RAW)
