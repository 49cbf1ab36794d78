"""Loading without network: files, folders, caches, and every refusal by name."""

import json
import logging
import socket
import warnings

import numpy as np
import open_clip
import pytest
import torch
from clip_towers import CONFIGS, clip, images, network
from PIL import Image
from safetensors.torch import save_file

from ood_lab.clip import load_clip, missing_files
from ood_lab.common.arguments import check_values
from ood_lab.common.errors import UserError


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture(scope="module")
def state():
    return {k: v.contiguous() for k, v in network("t-vit").state_dict().items()}


def save(state, path):
    if path.suffix == ".safetensors":
        save_file(state, path)
    elif path.suffix == ".pt":
        torch.save({"state_dict": {f"module.{k}": v for k, v in state.items()}}, path)
    else:
        torch.save(state, path)


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt", "w.bin"])
def test_a_file_gives_the_same_features(tmp_path, state, name):
    save(state, tmp_path / name)
    model = load_clip("t-vit", str(tmp_path / name), quick_gelu=False)
    batch = images("t-vit")
    torch.testing.assert_close(model.encode_image(batch), clip("t-vit").encode_image(batch))
    assert model.identity == {**clip("t-vit").identity, "name": "t-vit"}
    assert not model.training
    assert model.embed_dim == 48
    assert model.logit_scale == pytest.approx(1 / 0.07)


def test_quick_gelu_is_said_and_matters(tmp_path, state):
    save(state, tmp_path / "w.bin")
    file, batch = str(tmp_path / "w.bin"), images("t-vit")
    with pytest.raises(UserError, match=r"clip\.quick_gelu=true"):
        load_clip("t-vit", file)
    plain = load_clip("t-vit", file, quick_gelu=False).encode_image(batch)
    quick = load_clip("t-vit", file, quick_gelu=True).encode_image(batch)
    named = load_clip("t-vit-quickgelu", file, quick_gelu=True).encode_image(batch)
    assert (plain - quick).abs().max() > 1e-5
    torch.testing.assert_close(quick, named)
    plain_again = load_clip("t-vit-quickgelu", file, quick_gelu=False).encode_image(batch)
    torch.testing.assert_close(plain, plain_again)


def folder_of(path, state, **config):
    path.mkdir()
    described = {"model_cfg": CONFIGS["t-vit"], "preprocess_cfg": config}
    (path / "open_clip_config.json").write_text(json.dumps(described))
    save(state, path / "open_clip_model.safetensors")
    return f"local-dir:{path}"


@pytest.mark.parametrize("mode", ["shortest", "squash"])
def test_a_folder_brings_its_images_settings(tmp_path, state, mode):
    mean = [0.1, 0.2, 0.3]
    name = folder_of(
        tmp_path / "clip", state, mean=mean, interpolation="bilinear", resize_mode=mode
    )
    model = load_clip(name)
    assert model.data_config["mean"] == tuple(mean)
    pixels = np.random.default_rng(0).integers(0, 256, (50, 40, 3), np.uint8)
    image = Image.fromarray(pixels)
    _, _, theirs = open_clip.create_model_and_transforms(name)
    torch.testing.assert_close(model.preprocess(image), theirs(image))
    torch.testing.assert_close(
        model.encode_image(images("t-vit")), clip("t-vit").encode_image(images("t-vit"))
    )


def test_padded_images_are_refused(tmp_path, state):
    with pytest.raises(UserError, match="resize_mode=longest"):
        load_clip(folder_of(tmp_path / "clip", state, resize_mode="longest"))


def test_an_openai_archive(tmp_path):
    net = network("t-vit-quickgelu")
    # The archives hold three numbers beside the weights, and no mask.
    net.attn_mask = net._buffers.pop("attn_mask")
    for number in ("input_resolution", "context_length", "vocab_size"):
        net.__dict__.pop(number, None)
        net.register_buffer(number, torch.tensor(1))
    ids = open_clip.tokenize(["a cat"])
    warnings.simplefilter("ignore", torch.jit.TracerWarning)
    archive = torch.jit.trace_module(
        net, {"encode_image": images("t-vit"), "encode_text": ids}, check_trace=False
    )
    file = tmp_path / "ViT.pt"
    archive.save(str(file))
    model = load_clip("t-vit", str(file), quick_gelu=True)
    batch = images("t-vit")
    expected = torch.nn.functional.normalize(net.encode_image(batch), dim=-1)
    torch.testing.assert_close(model.encode_image(batch), expected)
    with pytest.raises(UserError, match="QuickGELU mismatch"):
        load_clip("t-vit", str(file), quick_gelu=False)
    with pytest.raises(UserError, match="does not fit t-resnet"):
        load_clip("t-resnet", str(file), quick_gelu=True)


@pytest.fixture
def tag(monkeypatch):
    from open_clip import pretrained

    published = {"hf_hub": "org/repo/", "quick_gelu": True, "mean": (0.5, 0.5, 0.5)}
    tags = {"quick": published, "plain": {**published, "quick_gelu": False}}
    for name in ("t-vit", "t-vit-quickgelu"):
        monkeypatch.setitem(pretrained._PRETRAINED, name, tags)
    return "quick"


def fill_cache(cache, state):
    snapshot = cache / "models--org--repo" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (cache / "models--org--repo" / "refs").mkdir()
    (cache / "models--org--repo" / "refs" / "main").write_text("abc")
    save(state, snapshot / "open_clip_model.safetensors")


def test_a_tag_loads_from_a_filled_cache_with_its_own_images(tmp_path, state, tag):
    cache = str(tmp_path)
    arguments = {"name": "t-vit-quickgelu", "pretrained": tag, "cache_dir": cache}
    assert missing_files(**arguments) == ["org/repo/open_clip_pytorch_model.bin"]
    with pytest.raises(UserError, match=r"org/repo/\S+; set clip\.download=true"):
        load_clip(**arguments)
    fill_cache(tmp_path, state)
    assert missing_files(**arguments) == []
    model = load_clip(**arguments)
    assert model.data_config["mean"] == (0.5, 0.5, 0.5)
    assert model.identity["weights_sha256"] == clip("t-vit").identity["weights_sha256"]


def test_the_activation_of_a_tag_must_agree(tmp_path, state, tag):
    fill_cache(tmp_path, state)
    with pytest.raises(UserError, match=r"QuickGELU mismatch.*clip\.name=t-vit-quickgelu"):
        load_clip("t-vit", tag, cache_dir=str(tmp_path))
    with pytest.raises(UserError, match=r"QuickGELU mismatch.*clip\.name=t-vit or"):
        load_clip("t-vit-quickgelu", "plain", cache_dir=str(tmp_path))
    assert load_clip("t-vit", tag, True, str(tmp_path)).embed_dim == 48


def test_published_tags_are_checked_without_their_files(tmp_path):
    with pytest.raises(UserError, match=r"QuickGELU mismatch.*ViT-B-16-quickgelu"):
        load_clip("ViT-B-16", "openai", cache_dir=str(tmp_path))
    missing = missing_files("ViT-B-16-quickgelu", "openai", cache_dir=str(tmp_path))
    assert len(missing) == 1


REFUSED = {
    "unknown name": (("ViT-B-61",), "ViT-B-16"),
    "no weights": (("ViT-B-16",), "laion2b_s34b_b88k"),
    "unknown tag": (("ViT-B-16", "opennai"), "openai"),
    "wrong path": (("t-vit", "nowhere/w.pt"), "nowhere"),
    "no such folder": (("local-dir:nowhere",), "no such folder"),
    "two sources": (("tiny", "w.pt"), "exclude each other"),
    "hugging face tower": (("t-hf", "w.pt"), "roberta-base"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_name_the_culprit(case, tmp_path, state, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.pt").write_bytes(b"")
    arguments, named = REFUSED[case]
    with pytest.raises(UserError, match=named) as error:
        load_clip(*arguments)
    assert "\n" not in str(error.value)


def test_a_tokenizer_of_another_library(tmp_path, monkeypatch):
    (tmp_path / "w.pt").write_bytes(b"")
    arguments = ("t-hf-tokenizer", str(tmp_path / "w.pt"), str(tmp_path))
    monkeypatch.setattr("ood_lab.clip.weight_sources.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"some/tokenizer.*transformers"):
        missing_files(*arguments)
    monkeypatch.setattr("ood_lab.clip.weight_sources.find_spec", lambda name: name)
    (file,) = missing_files(*arguments)
    assert file.startswith("some/tokenizer/")


def test_a_wrong_path_names_its_neighbour(tmp_path, state):
    save(state, tmp_path / "weights.bin")
    with pytest.raises(UserError, match=r"nearest: weights\.bin"):
        load_clip("t-vit", str(tmp_path / "weigths.bin"), quick_gelu=False)


def test_a_folder_without_weights_or_configuration(tmp_path, state):
    name = folder_of(tmp_path / "clip", state)
    (tmp_path / "clip" / "open_clip_model.safetensors").unlink()
    assert missing_files(name) == [str(tmp_path / "clip" / "open_clip_model.safetensors")]
    with pytest.raises(UserError, match="missing"):
        load_clip(name)
    (tmp_path / "clip" / "open_clip_config.json").unlink()
    with pytest.raises(UserError, match="open_clip_config"):
        load_clip(name)


def test_weights_of_another_architecture_and_damaged_files(tmp_path, state):
    save(state, tmp_path / "w.bin")
    with pytest.raises(UserError, match="does not fit t-resnet"):
        load_clip("t-resnet", str(tmp_path / "w.bin"), quick_gelu=False)
    (tmp_path / "damaged.bin").write_bytes(b"no checkpoint")
    with pytest.raises(UserError, match=r"damaged\.bin"):
        load_clip("t-vit", str(tmp_path / "damaged.bin"), quick_gelu=False)


def test_loading_says_nothing_and_keeps_the_logger(tmp_path, state, caplog):
    name = folder_of(tmp_path / "clip", state)
    with caplog.at_level(logging.INFO):
        load_clip(name)
        assert not caplog.records
        logging.getLogger().warning("heard")
    assert len(caplog.records) == 1


def test_precision_is_checked():
    with pytest.raises(UserError, match="fp31"):
        check_values(load_clip, {"precision": "fp31"}, "clip")
