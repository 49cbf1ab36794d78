"""The three tasks through the real entry point, on random models of a few thousand weights."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import tiny_models
import torch
from cli import call
from lightning.pytorch import Trainer
from omegaconf import OmegaConf
from PIL import Image

from ood_lab.clip import load_clip
from ood_lab.common.arguments import check_values
from ood_lab.common.errors import UserError
from ood_lab.common.grouping import without_keys
from ood_lab.data.datamodules.folder import FolderDataModule
from ood_lab.data.sources.image_files import load_rgb
from ood_lab.data.sources.manifest import read_manifest
from ood_lab.schema.run_record import RunRecord
from ood_lab.scripts import CONF
from ood_lab.shift import Decomposition, ShiftMeter, save_decomposition
from ood_lab.synthesis import Prompts, grey_foreground, read_styles
from ood_lab.synthesis.prompt_selection import make_plan
from ood_lab.tasks import select_classes
from ood_lab.tasks.select_classes import SelectClasses
from ood_lab.tasks.synthesize import Synthesize
from ood_lab.tasks.transfer import Transfer

pytest.importorskip("diffusers")


def pictures(folder, n, seed, size=(40, 32)):
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    for i in range(n):
        pixels = rng.integers(0, 256, (size[1], size[0], 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Two ID classes in three splits, and an OOD set."""
    root = tmp_path_factory.mktemp("photos")
    for position, split in enumerate(("train", "val", "test")):
        for shift, name in enumerate(("ding", "gui")):
            pictures(root / split / name, 6, 10 * position + shift)
    pictures(root / "ood", 3, 99)
    return root


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Everything that the transfer needs; the pipeline alone serves the synthesis."""
    root = tmp_path_factory.mktemp("models")
    tiny_models.save_pipeline(root / "pipeline")
    (root / "pipeline" / "README.md").write_text("---\nlicense: openrail++\n---\n")
    tiny_models.save_controlnet(root / "controlnet")
    tiny_models.save_depth(root / "depth")
    (root / "adapter").mkdir()
    tiny_models.save_adapter(root / "adapter")
    return root


def run(task, photos, tmp_path, *more):
    data = [f"data.id.{split}={photos}/{split}" for split in ("train", "val", "test")]
    places = (f"data.ood.noise={photos}/ood", f"paths.outputs={tmp_path}/outputs")
    common = ("data.num_workers=0", "callbacks=none", f"task.out={tmp_path}/out", "task.device=cpu")
    return call("eval.py", f"task={task}", "data=folder", *data, *places, *common, *more)


def direct(task, out, **options):
    """The task itself with the settings of its YAML, without another start of the program."""
    ws = options.pop("place", SimpleNamespace(record=RunRecord(), is_main=True))
    if "clip" in options:
        ws.clip = options.pop("clip")
    file = CONF / "task" / f"{task.__module__.rpartition('.')[2]}.yaml"
    settings = without_keys(OmegaConf.to_container(OmegaConf.load(file).task), {"_target_", "uses"})
    task(**settings | {"out": str(out), "device": "cpu"} | options).run(ws)


def place_of(data, seed, **more):
    return SimpleNamespace(data=data, seed=seed, record=RunRecord(), is_main=True, **more)


@pytest.fixture(scope="module")
def laid(tmp_path_factory):
    """A random orthogonal matrix, as ``model=laid`` would write it."""
    clip = load_clip("tiny")
    folder = tmp_path_factory.mktemp("laid")
    W = torch.linalg.qr(torch.randn(clip.embed_dim, clip.embed_dim))[0]
    for name in ("laid", "pca"):
        split = Decomposition(name, W, clip.embed_dim // 2, clip.identity, k=3)
        save_decomposition(folder / f"{name}.safetensors", split)
    return folder, W, clip


def degrees(laid, photos, prompts):
    """Brute force, in float64: distance of each text to its third nearest ID image."""
    _, W, clip = laid
    files = sorted((photos / "train").rglob("*.png"))
    images = torch.stack([clip.preprocess(load_rgb(file)) for file in files])
    with torch.no_grad():
        bank = (clip.encode_image(images) @ W).double().numpy()
        texts = (clip.encode_text(prompts) @ W).double().numpy()
    halves = np.split(bank, 2, axis=1), np.split(texts, 2, axis=1)
    found = []
    for b, t in zip(*halves, strict=True):
        b, t = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (b, t))
        found.append(np.sort(1 - t @ b.T, axis=1)[:, 2])
    return found


def test_synthesis(photos, models, laid, tmp_path):
    words = "vessel,tripod,bowl,jar,cup,bottle,bell,horse,tree,car,house,boat"
    (tmp_path / "labels.txt").write_text(words.replace(",", "\n"))
    out = tmp_path / "out"
    assert run(
        "synthesize", photos, tmp_path, f"task.labels={tmp_path}/labels.txt", "seed=1",
        f"task.laid={laid[0]}", "task.levels=3", "task.per_cell=2",
        f"task.pipeline={models}/pipeline", "task.batch_size=5", "task.dtype=float32",
        "task.arguments.num_inference_steps=1", "task.arguments.guidance_scale=null",
    ) == 0  # fmt: skip

    plan = pd.read_csv(out / "plan.csv", keep_default_na=False)
    edges = json.loads((out / "level_edges.json").read_text())
    for axis, expected in zip(
        ("semantic", "covariate"), degrees(laid, photos, plan["prompt"].tolist()), strict=True
    ):
        np.testing.assert_allclose(plan[f"{axis}_degree"], expected, atol=1e-5)
        level = np.searchsorted(edges[axis], plan[f"{axis}_degree"], side="right")
        assert (level == plan[f"{axis}_level"]).all()
    assert plan.groupby(["semantic_level", "covariate_level"]).size().max() == 2
    assert plan["seed"].is_unique
    assert plan["file"].is_unique

    manifest = pd.read_csv(out / "manifest.csv")
    assert list(manifest) == [
        "path", "label", "prompt", "style", "semantic_level", "covariate_level", "seed",
    ]  # fmt: skip
    table, _ = read_manifest(out / "manifest.csv", classes=[])
    assert len(table) == len(plan)
    assert table["semantic_level"].tolist() == plan["semantic_level"].tolist()
    sheet = (out / "datasheet.md").read_text()
    assert "openrail++" in sheet
    assert "num_inference_steps" in sheet

    data = FolderDataModule(
        {split: f"{photos}/{split}" for split in ("train", "val", "test")},
        {"x": f"{photos}/ood"},
        num_workers=0,
    )
    data.setup()
    options = {
        "place": place_of(
            data, 1, features_root=tmp_path / "features",
            extractor=Trainer(logger=False, accelerator="cpu", enable_progress_bar=False),
        ),
        "clip": laid[2], "levels": 3, "per_cell": 2, "labels": f"{tmp_path}/labels.txt",
        "laid": str(laid[0]), "pipeline": f"{models}/pipeline",
        "arguments": {"num_inference_steps": 1},
    }  # fmt: skip

    # A stopped run makes the same images again, and only those that are missing.
    first = {path: np.asarray(Image.open(path)).astype(int) for path in table["path"]}
    assert len({pixels.tobytes() for pixels in first.values()}) == len(first)
    gone, kept = (Path(path) for path in table["path"].iloc[:2])
    before = kept.stat().st_mtime_ns
    gone.unlink()
    direct(Synthesize, out, **options)
    assert kept.stat().st_mtime_ns == before
    assert np.abs(np.asarray(Image.open(gone)).astype(int) - first[str(gone)]).max() <= 2

    for wrong, said in (
        ({"arguments": {"colour": 3}}, r"takes no task\.arguments\.colour"),
        ({"arguments": {"num_inference_steps": 2}}, "begun with other arguments"),
        ({"per_cell": 3}, "begun with other per_cell"),
        ({"pipeline": "owner/not-here"}, r"set task\.download=true once"),
        ({"pipeline": f"{models}/depth"}, r"no model_index\.json"),
        ({"device": "nowhere"}, "device=nowhere: give cpu"),
    ):
        with pytest.raises(UserError, match=said):
            direct(Synthesize, out, **options | wrong)
    # A plan needs no pipeline.
    only = {"plan_only": True, "pipeline": "owner/not-here"}
    direct(Synthesize, tmp_path / "b", **options | only)
    assert sorted(p.name for p in (tmp_path / "b").iterdir()) == [
        "level_edges.json", "plan.csv", "plan.json",
    ]  # fmt: skip


def test_plans_that_lack_prompts(laid, tmp_path, caplog):
    _, W, clip = laid
    right = {"prompts": None, "levels": 3, "per_cell": 500, "seed": 0}
    for wrong in ({"per_cell": 0}, {"prompts": 0}, {"dtype": "float8"}):
        (key,) = wrong
        with pytest.raises(UserError, match=f"task.{key}="):
            check_values(Synthesize, wrong, "task")
    split = Decomposition("laid", W, clip.embed_dim // 2, clip.identity, k=1)
    meter = ShiftMeter(split, torch.randn(20, clip.embed_dim))
    pool = Prompts(read_styles()[:8], ["vessel", "cup", "horse"])
    plan = make_plan(pool, clip.encode_text, meter, tmp_path, **right)
    assert re.search(r"9 of 9 cells have fewer than 500 .*: cov_0_sem_0 \(", caplog.text)
    assert sorted(plan["prompt"]) == sorted(pool.text(i) for i in range(len(pool)))
    few = make_plan(pool, clip.encode_text, meter, tmp_path, **right | {"prompts": 9})
    assert set(few["prompt"]) < set(plan["prompt"])
    assert len(few) == 9


def test_transfer(photos, models, tmp_path):
    content = pictures(tmp_path / "content" / "bowl", 2, 5, (48, 32)).parent
    (tmp_path / "masks").mkdir()
    mask = np.zeros((32, 48), np.uint8)
    mask[8:24, 12:36] = 255
    for name in ("0.png", "1.png"):
        Image.fromarray(mask).save(tmp_path / "masks" / name)
    given = (
        f"task.content={content}", "task.per_content=2", "task.size=48",
        f"task.pipeline={models}/pipeline", f"task.controlnet={models}/controlnet",
        f"task.depth={models}/depth", f"task.ip_adapter.folder={models}/adapter",
        "task.ip_adapter.weights=weights/adapter.safetensors",
        "task.ip_adapter.image_encoder=models/encoder", "task.arguments.num_inference_steps=2",
    )  # fmt: skip
    masks = f"task.masks={tmp_path}/masks"
    assert run("transfer", photos, tmp_path, *given, masks) == 0
    out = tmp_path / "out"
    manifest, _ = read_manifest(out / "manifest.csv", classes=[])
    assert len(manifest) == 4
    assert set(manifest["category_name"]) == {"bowl"}
    assert all("/test/" in path for path in manifest["exemplar"])
    assert manifest.groupby("content")["exemplar"].nunique().tolist() == [2, 2]
    assert {Image.open(path).size for path in manifest["path"]} == {(48, 32)}
    pairs = [np.asarray(load_rgb(path)).tobytes() for path in manifest["path"]]
    assert len(set(pairs)) == 4  # the exemplar and the seed count

    data = FolderDataModule(
        {split: f"{photos}/{split}" for split in ("train", "val", "test")}, {"x": f"{photos}/ood"}
    )
    options = {
        "place": place_of(data, 0), "content": str(content), "size": 48,
        "masks": f"{tmp_path}/masks", "arguments": {"num_inference_steps": 1},
        "ip_adapter": {
            "folder": f"{models}/adapter", "weights": "weights/adapter.safetensors",
            "image_encoder": "models/encoder",
        },
        **{name: f"{models}/{name}" for name in ("pipeline", "controlnet", "depth")},
    }  # fmt: skip
    direct(Transfer, tmp_path / "b", **options)
    assert len(pd.read_csv(tmp_path / "b" / "manifest.csv")) == 2

    (tmp_path / "leak").mkdir()
    leak = tmp_path / "leak" / "renamed.png"
    leak.write_bytes((photos / "train" / "gui" / "0.png").read_bytes())
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "0.png").write_bytes((tmp_path / "masks" / "0.png").read_bytes())
    for wrong, said in (
        ({"exemplars": str(leak.parent)}, r"renamed\.png' is also a train image, '.*gui/0\.png'"),
        ({"exemplars": f"{photos}/ood"}, "is not an ID test image"),
        ({"masks": f"{tmp_path}/few"}, r"no mask for 1 of 2 images; first: .*1\.png"),
        ({"masks": None}, "what is foreground"),
        ({"per_content": 13}, "there are 12 exemplars"),
        ({"arguments": {"colour": 1}}, r"takes no task\.arguments\.colour"),
        (
            {"depth": None, "controlnet": "x"},
            r"controlnet=x is not a directory; task\.depth is not set",
        ),
    ):
        with pytest.raises(UserError, match=said):
            direct(Transfer, tmp_path / "c", **options | wrong)
    some = str(photos / "test" / "gui")
    direct(Transfer, tmp_path / "d", **options, exemplars=some, per_content=6, plan_only=True)
    plan = pd.read_csv(tmp_path / "d" / "plan.csv")
    assert set(plan["exemplar_label"]) == {"gui"}
    assert len(plan) == 12


def test_grey_foreground_keeps_light_and_background():
    content = Image.new("RGB", (8, 8), (200, 10, 10))
    mask = Image.new("L", (8, 8), 0)
    mask.paste(255, (0, 0, 4, 8))
    grey = np.asarray(grey_foreground(content, mask)).astype(int)
    luma = round(0.299 * 200 + 0.587 * 10 + 0.114 * 10)
    assert np.abs(grey[:, :4] - luma).max() <= 1
    assert (grey[:, 4:] == (200, 10, 10)).all()


def test_class_selection(photos, tmp_path, monkeypatch):
    out = tmp_path / "out"
    keywords = ("task.concept='bronze vessels'", "task.keywords=[teapot,urn,crock]")
    assert run("select_classes", photos, tmp_path, *keywords) == 0
    classes = pd.read_csv(out / "classes.csv")
    assert "n04398044" not in set(classes["wnid"])  # teapot, one of ImageNet-1K's
    assert classes["label"].str.contains("urn").any()

    base = {"concept": "bronze vessels", "keywords": ["urn", "crock"]}
    with pytest.raises(UserError, match="nothing to select by"):
        direct(SelectClasses, out, concept="x")

    tiny_models.save_language_model(tmp_path / "yes", "yes")
    tiny_models.save_language_model(tmp_path / "maybe", "maybe")
    monkeypatch.setattr(select_classes, "QUESTION", "{label} ({definition}) {concept} ?")
    ask = {**base, "max_new_tokens": 2, "llm": f"{tmp_path}/yes"}
    direct(SelectClasses, out, **ask)
    kept = pd.read_csv(out / "classes.csv")
    assert (kept["reason"] == "yes yes").all()
    lines = (out / "answers.jsonl").read_text().splitlines()
    assert len(lines) == len(kept) + 1
    direct(SelectClasses, out, **ask)
    assert (out / "answers.jsonl").read_text().splitlines() == lines
    with pytest.raises(UserError, match="no class is left"):
        direct(SelectClasses, tmp_path / "b", **ask | {"llm": f"{tmp_path}/maybe"})
    with pytest.raises(UserError, match="another model"):
        direct(SelectClasses, out, **ask | {"llm": f"{tmp_path}/maybe"})

    tiny_models.save_detector(tmp_path / "detector")
    wnids = kept["wnid"].tolist()[:2]
    for seed, wnid in enumerate(wnids):
        pictures(tmp_path / "images" / wnid, 4, seed)
    look = {**base, "images": f"{tmp_path}/images", "detector": f"{tmp_path}/detector"}
    direct(SelectClasses, out, **look, threshold=0.0, min_share=0.0)
    found = pd.read_csv(out / "manifest.csv")
    assert sorted(found["wnid"]) == sorted(wnids * 4)
    assert found["share"].between(0, 1).all()
    assert found["score"].between(0, 1).all()
    boxes = (out / "boxes.jsonl").read_text()
    limit = found["share"].median()
    direct(SelectClasses, out, **look, threshold=0.0, min_share=limit)
    again = pd.read_csv(out / "manifest.csv")
    assert again["path"].tolist() == found["path"][found["share"] >= limit].tolist()
    assert (out / "boxes.jsonl").read_text() == boxes
    with pytest.raises(UserError, match=r"lower task\.threshold"):
        direct(SelectClasses, out, **look, threshold=1.0)
