"""``task=predict``: a folder of images in, a table out; fitted detectors used again from file."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import torch
from cli import call, run_folders
from PIL import Image
from timm.data import create_transform

import ood_lab
from ood_lab.builtin.vessels.module import VesselsDataModule
from ood_lab.errors import UserError
from ood_lab.evaluation.images import read_images
from ood_lab.models import saved_entry

SIZES = {"train": 150, "val": 100, "test": 80, "per_shift_set": 8, "per_cell": 0}
SMALL = [f"data.{key}={value}" for key, value in SIZES.items()]
NAMES = ["knn", "odin", "gram", "rankfeat", "mds_ensemble", "react", "klm"]
STEP = "detector.mds_ensemble.noise=0.0014"  # needs a second pass
NO_DATA = ["data=folder", "data.id.train=nowhere", "data.ood.x=nowhere"]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    return tmp_path_factory.mktemp("outputs")


@pytest.fixture(scope="module")
def trained(outputs):
    detectors = (f"detector=[{','.join(NAMES)}]", STEP)
    arguments = ("logger=none", "task.report=false", "shift=sets", f"paths.outputs={outputs}")
    assert call("train.py", "experiment=smoke", *SMALL, *detectors, *arguments) == 0
    return run_folders(outputs)[-1]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """ID test as PNG in nested folders, with one file that is no image."""
    folder = tmp_path_factory.mktemp("pictures")
    data = VesselsDataModule(**SIZES)
    data.setup()
    for i in range(SIZES["test"]):
        place = folder / ("first" if i < 30 else "second/deeper") / f"{i:03}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        data.splits["test"].load_image(i).save(place)
    (folder / "first" / "zzz.png").write_text("no image")
    return folder


@pytest.fixture(scope="module")
def predict(trained, outputs):
    def run(*arguments):
        line = (f"ckpt={trained}", f"paths.outputs={outputs}", "logger=none", "name=predict")
        status = call("eval.py", "task=predict", *line, *arguments)
        return run_folders(outputs / "predict")[-1] if status == 0 else None

    return run


@pytest.fixture(scope="module")
def fitted(predict, pictures):
    return predict(f"task.images={pictures}", f"detector=[{','.join(NAMES)}]", STEP)


def table(folder):
    return pd.read_csv(folder / "predictions.csv", dtype={"error": str}, keep_default_na=True)


def test_the_table_holds_what_the_score_task_finds(fitted, trained):
    found = table(fitted)
    assert len(found) == SIZES["test"] + 1
    read = found[found.error.isna()]
    scores = pd.read_parquet(trained / "scores.parquet").query("dataset == 'test'")
    classes = json.loads((trained / "manifest.json").read_text())["classes"]
    assert read.predicted.tolist() == [classes[i] for i in scores.pred]
    for name in NAMES[:5]:  # the others are fitted on half of val here
        np.testing.assert_allclose(read[f"{name}_score"], scores[name], rtol=1e-5, atol=1e-5)


def test_both_tasks_say_that_there_was_a_second_pass(fitted, trained):
    runs = [json.loads((f / "manifest.json").read_text())["second_pass"] for f in (fitted, trained)]
    assert [run["detectors"] for run in runs] == [["mds_ensemble"]] * 2
    assert runs[0]["columns"] == runs[1]["columns"]  # learned from the same images
    assert list(runs[0]["seconds"]) == ["images", "val"]
    assert "test" in runs[1]["seconds"]
    assert len(runs[1]["seconds"]) == 6


def test_an_unreadable_image_is_a_row_with_an_error(fitted):
    (row,) = table(fitted).dropna(subset="error").to_dict("records")
    assert row.pop("path").endswith("first/zzz.png")
    assert "identify image" in row.pop("error")
    assert all(pd.isna(value) for value in row.values())


def test_verdicts_follow_from_held_out_id_images(fitted):
    found = table(fitted).query("error.isna()")
    summary = json.loads((fitted / "manifest.json").read_text())["detectors"]
    for name in NAMES:
        n = 50 if name in ("react", "klm") else 100  # of the 100 in val
        assert summary[name]["held_out"] == n
        score, flagged = found[f"{name}_score"], found[f"{name}_is_ood"].astype(bool)
        assert flagged.tolist() == (score > summary[name]["threshold_score"]).tolist()
        p = found[f"{name}_p_value"]
        assert flagged.tolist() == (p <= 0.05).tolist()
        np.testing.assert_allclose(p * (n + 1), (p * (n + 1)).round(), atol=1e-9)
        # 5% of ID, give or take four standard errors of both samples.
        assert flagged.mean() < 0.05 + 4 * np.sqrt(0.05 * 0.95 * (1 / n + 1 / 80))
        assert p.mean() == pytest.approx(0.5, abs=0.2)


def test_the_page_shows_what_the_table_says(fitted):
    page = (fitted / "predictions.html").read_text()
    found = table(fitted).query("error.isna()")
    flagged = int(found.knn_is_ood.astype(bool).sum())
    assert f"Of 80 images, knn flags {flagged} ({flagged / 80:.0%})" in page
    assert "1 image cannot be read." in page
    assert "task=predict" in page
    assert (fitted / "figures" / "predictions.png").stat().st_size > 10_000
    ordered = found.sort_values("knn_score", ascending=False, kind="stable")
    texts = [
        f"{row.path.rpartition('/')[2]}: {row.predicted}; p = {row.knn_p_value:.3g}, "
        f"score {row.knn_score:.4g}{', OOD' if row.knn_is_ood else ''}"
        for row in [*ordered.head(12).itertuples(), *ordered[::-1].head(12).itertuples()]
    ]
    places = [page.index(text) for text in texts]
    assert places == sorted(places)


def test_images_are_pointed_to_in_every_way(pictures, tmp_path):
    first = sorted(pictures.glob("first/0*.png"))
    one, pattern, deep = f"{first[0]}", f"{pictures}/first/0*.png", f"{pictures}/**/00?.png"
    (tmp_path / "list.txt").write_text("".join(f"{path}\n" for path in first[:3]))
    cases = {
        one: first[:1],
        pattern: first,
        deep: first[:10],
        f"{tmp_path}/list.txt": first[:3],
        f"{pictures}/second": sorted(pictures.glob("second/deeper/*.png")),
    }
    for source, expected in cases.items():
        assert read_images(source).table["path"].tolist() == list(map(str, expected))
    several = read_images([one, {"path": f"{tmp_path}/list.txt"}, pattern])
    expected = [*first[:1], *first[:3], *first]
    assert several.table["path"].tolist() == list(map(str, expected))


def test_images_that_are_not_there_are_one_line(pictures, tmp_path):
    (tmp_path / "notes.md").write_text("")
    cases = {
        f"{tmp_path}/*.jpg": f"task.images: '{tmp_path}/*.jpg' matches no image",
        f"{tmp_path}/*": f"matches no image, only other files such as '{tmp_path}/notes.md'",
        f"{pictures}/frist": f"does not exist; nearest: '{pictures}/first'",
        f"{pictures}/first/zzz.png": "1 of 1 images cannot be read; first: ",
        (): "task.images is an empty list",
    }
    for source, message in cases.items():
        with pytest.raises(UserError, match=re.escape(message)):
            read_images(source)


def test_saved_detectors_need_no_id_images(fitted, predict, pictures):
    saved = f"task.detector_file={fitted}/detectors"  # all of the folder
    again = predict(f"task.images={pictures}", saved, *NO_DATA)
    assert again != fitted
    before = table(fitted)
    pd.testing.assert_frame_equal(table(again)[before.columns], before, rtol=1e-6)
    assert not (again / "detectors").exists()


def test_an_exported_detector_gives_the_scores_of_the_table(fitted, predict, pictures, trained):
    session = pytest.importorskip("onnxruntime").InferenceSession
    pytest.importorskip("onnx")
    saved = ",".join(f"{fitted}/detectors/{name}.safetensors" for name in ("knn", "klm", "odin"))
    images = f"task.images={pictures}/second"
    found = predict(images, f"task.detector_file=[{saved}]", "task.onnx=true", *NO_DATA)
    assert {file.name for file in (found / "detectors").iterdir()} == {"knn.onnx", "klm.onnx"}
    manifest = json.loads((found / "manifest.json").read_text())
    assert "odin reads gradients or inner layers" in manifest["not_exported"]["odin"]
    weights = next((trained / "checkpoints").glob("*.ckpt"))
    transform = create_transform(**saved_entry(weights, "data_config"))
    expected = table(found)
    pixels = torch.stack([transform(Image.open(path).convert("RGB")) for path in expected.path])
    for name in ("knn", "klm"):
        graph = session(found / "detectors" / f"{name}.onnx")
        logits, scores = graph.run(["logits", "score"], {"image": pixels.numpy()})
        np.testing.assert_allclose(scores, expected[f"{name}_score"], rtol=0, atol=1e-4)
        facts = graph.get_modelmeta().custom_metadata_map
        names = json.loads(facts["classes"])
        assert [names[i] for i in logits.argmax(axis=1)] == expected.predicted.tolist()
        loaded = ood_lab.load_detector(fitted / "detectors" / f"{name}.safetensors")
        assert float(facts["threshold"]) == loaded.threshold
        assert (facts["transform"], float(facts["alpha"])) == (loaded.transform, 0.05)
        verdict = expected[f"{name}_is_ood"].astype(bool)
        assert (scores > float(facts["threshold"])).tolist() == verdict.tolist()


def test_an_export_that_cannot_be_is_said_before_any_pass(predict, pictures, capsys):
    arguments = (f"task.images={pictures}/first", "detector=[odin,gram]", "task.onnx=true")
    assert predict(*arguments) is None
    assert "task.onnx=true: odin reads gradients or inner layers" in capsys.readouterr().err


def test_a_list_of_images_at_another_rate(fitted, predict, pictures, tmp_path):
    paths = [f"second/deeper/{i:03}.png" for i in range(79, 39, -1)]
    pd.DataFrame({"path": paths}).to_csv(tmp_path / "list.csv", index=False)
    source = f"task.images={{path: '{tmp_path}/list.csv', root: '{pictures}'}}"
    file = f"task.detector_file={fitted}/detectors/odin.safetensors"
    found = table(predict(source, file, "task.alpha=0.2", *NO_DATA))
    assert [path.removeprefix(f"{pictures}/") for path in found.path] == paths
    assert found.odin_is_ood.tolist() == (found.odin_p_value <= 0.2).tolist()
    before = table(fitted).set_index("path").loc[found.path]
    np.testing.assert_allclose(found.odin_p_value, before.odin_p_value)


def test_too_few_held_out_images_are_said_before_any_pass(predict, pictures, outputs, capsys):
    """Detectors that are fitted on val get half of it."""
    some = (f"task.images={pictures}", "detector=[knn,react,klm]", "data.val=30")
    features = sorted((outputs / "features").iterdir())
    assert predict(*some, "task.alpha=0.03") is None
    error = capsys.readouterr().err
    assert "needs 33 held-out ID images at least, there are 30" in " ".join(error.split())
    assert sorted((outputs / "features").iterdir()) == features
    found = predict(*some)
    log = (found / "log.txt").read_text()
    assert "left out, as half of val goes into their fit: react, klm; task.alpha=0.05 needs" in log
    assert "there are 15, and no p-value is below 1/16" in log
    assert [c for c in table(found).columns if c.endswith("is_ood")] == ["knn_is_ood"]
    assert set(json.loads((found / "manifest.json").read_text())["refused"]) == {"react", "klm"}


@pytest.mark.slow
def test_wrong_input_is_one_line(predict, pictures, fitted, tmp_path, capsys):
    images, knn = f"task.images={pictures}", "detector=[knn]"
    (tmp_path / "only.png").write_text("no image")
    (tmp_path / "file").write_text("no detector")
    cases = {
        "images=...": (knn,),
        "nowhere' does not exist": (knn, "task.images=nowhere"),
        "1 of 1 images cannot be read": (knn, f"task.images={tmp_path}"),
        "task.alpha=1: give a number below 1": (knn, images, "task.alpha=1"),
        "needs 999 held-out": (knn, images, "task.alpha=0.001"),
        "is not a detector file": (images, f"task.detector_file={tmp_path}/file"),
        "holds no .safetensors file": (images, f"task.detector_file={tmp_path}"),
        "two files hold a detector 'knn'": (
            images,
            "task.detector_file=['{0}','{0}']".format(fitted / "detectors" / "knn.safetensors"),
        ),
    }
    for message, arguments in cases.items():
        assert predict(*arguments) is None
        error = capsys.readouterr().err.strip()
        assert error.startswith("error:")
        assert message in error
        assert len(error.splitlines()) == 1
