"""``task=predict``: a folder of images in, a table out; fitted detectors used again from file."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from cli import call, run_folders
from PIL import Image
from scipy import stats

import ood_lab
from ood_lab.builtin.vessels.datamodule import VesselsDataModule
from ood_lab.common.errors import UserError
from ood_lab.data.sources.pixel_decoding import Decoding
from ood_lab.deploy import read_rgb
from ood_lab.detectors import load_detector, save_detector
from ood_lab.evaluation.prediction.calibration import decoding_with, load_detectors
from ood_lab.evaluation.prediction.unlabelled_images import list_images, opened
from ood_lab.metrics import wilson_interval
from ood_lab.schema.image_statistics import words_of as words_for

SIZES = {"train": 150, "val": 100, "test": 80, "per_shift_set": 8, "per_cell": 0}
SMALL = [f"data.{key}={value}" for key, value in SIZES.items()]
NAMES = ["knn", "odin", "gram", "rankfeat", "mds_ensemble", "react", "klm"]
NO_DATA = ["data=folder", "data.id.train=nowhere", "data.ood.x=nowhere"]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    return tmp_path_factory.mktemp("outputs")


@pytest.fixture(scope="module")
def trained(outputs):
    detectors = f"detector=[{','.join(NAMES)}]"
    arguments = ("logger=none", "task.report=false", "report_by=sets", f"paths.outputs={outputs}")
    assert call("train.py", "task=score", "experiment=smoke", *SMALL, detectors, *arguments) == 0
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
    def run(*arguments, figures=()):
        line = (f"ckpt={trained}", f"paths.outputs={outputs}", "logger=none", "name=predict")
        status = call("eval.py", "task=predict", *line, *arguments, figures=figures)
        return run_folders(outputs / "predict")[-1] if status == 0 else None

    return run


@pytest.fixture(scope="module")
def fitted(predict, pictures):
    detectors = f"detector=[{','.join(NAMES)}]"
    return predict(f"task.images={pictures}", detectors, figures=["predictions"])


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


@pytest.mark.slow
def test_what_differs_is_said_of_the_group_and_of_single_images(predict, pictures, tmp_path):
    dark = tmp_path / "dark"
    dark.mkdir()
    for i, file in enumerate(sorted((pictures / "first").glob("0*.png"))):
        image = Image.open(file)
        (image.point(lambda v: v // 3) if i % 6 else image).save(dark / file.name)
    run = predict(f"task.images={dark}", "detector=[knn]")
    words, manifest = words_of(run)
    (first, *_), of = manifest["causes"], {c["statistic"]: c for c in manifest["causes"]}
    assert of["brightness"]["value"] < 0.25
    assert of["brightness"]["median"] < of["brightness"]["median_id"]
    assert (
        f"As a group, the images are {words_for(first['statistic'])[first['value'] > 0.5]} (AUROC "
        in words
    )
    data = VesselsDataModule(**SIZES)
    data.setup()

    def luma(image):
        return (np.asarray(image, float) @ (0.299, 0.587, 0.114)).mean() / 255

    least = min(luma(data.splits["val"].load_image(i)) for i in range(SIZES["val"]))
    found = table(run)
    below = [luma(Image.open(path)) < least for path in found.path]
    assert any(below)
    assert found.beyond_id.fillna("").str.contains("darker").tolist() == below
    first = found[below].iloc[0]
    text = f"{first.beyond_id} than all ID images"
    assert text in (run / "predictions.html").read_text()


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
        assert opened(list_images(source)).table["path"].tolist() == list(map(str, expected))
    several = opened(list_images([one, {"path": f"{tmp_path}/list.txt"}, pattern]))
    expected = [*first[:1], *first[:3], *first]
    assert several.table["path"].tolist() == list(map(str, expected))


def test_images_that_are_not_there_are_one_line(pictures, tmp_path):
    (tmp_path / "notes.md").write_text("")
    cases = {
        f"{tmp_path}/*.jpg": f"task.images: '{tmp_path}/*.jpg' matches no image",
        f"{tmp_path}/*": f"matches no image, only other files such as '{tmp_path}/notes.md'",
        f"{pictures}/frist": f"does not exist; nearest: '{pictures}/first'",
        f"{pictures}/first/zzz.png": "1 of 1 images cannot be read: ",
        (): "task.images is an empty list",
    }
    for source, message in cases.items():
        with pytest.raises(UserError, match=re.escape(message)):
            opened(list_images(source))


def test_new_images_are_decoded_as_the_id_images_are(tmp_path):
    """Floats have no range of their own: it is that of the training images."""
    Image.fromarray(np.full((8, 8), 0.5, np.float32)).save(tmp_path / "grey.tiff")
    with pytest.raises(UserError, match="floating-point pixels have no fixed range"):
        opened(list_images(tmp_path))
    images = opened(list_images(tmp_path), Decoding((0.0, 1.0))).readable
    assert images.load_image(0).getpixel((0, 0)) == (128, 128, 128)


@pytest.mark.slow
def test_saved_detectors_need_no_id_images(fitted, predict, pictures):
    saved = f"task.detector_file={fitted}/detectors"  # all of the folder
    again = predict(f"task.images={pictures}", saved, *NO_DATA)
    assert again != fitted
    before, found = table(fitted).drop(columns="beyond_id"), table(again)
    assert set(found) == set(before)  # without ID images nobody knows their range
    pd.testing.assert_frame_equal(found[before.columns], before, rtol=1e-6)
    assert not (again / "detectors").exists()


@pytest.mark.slow
def test_a_saved_detector_keeps_the_range_of_deep_images(fitted, predict, tmp_path):
    """A 12-bit image scores as its 8-bit version does where the training had 12 bits."""
    pixels = np.random.default_rng(0).integers(0, 4096, size=(32, 32)).astype(np.uint16)
    Image.fromarray(pixels).save(tmp_path / "deep.png")
    plain = (pixels * (255 / 4095)).round().astype(np.uint8)
    Image.fromarray(plain).save(tmp_path / "plain.png")
    saved = load_detector(fitted / "detectors/knn.safetensors")
    assert saved.pixel_range is None
    save_detector(tmp_path / "knn.safetensors", replace(saved, pixel_range=(0.0, 4095.0)))
    assert load_detector(tmp_path / "knn.safetensors").pixel_range == (0.0, 4095.0)
    for detector, same in ((tmp_path, True), (fitted / "detectors", False)):
        file = f"task.detector_file={detector}/knn.safetensors"
        scores = table(predict(f"task.images={tmp_path}/*.png", file, *NO_DATA))["knn_score"]
        assert (abs(scores[0] - scores[1]) < 1e-9) == same
    save_detector(tmp_path / "klm.safetensors", load_detector(fitted / "detectors/klm.safetensors"))
    with pytest.raises(UserError, match="different ranges of pixel values"):
        decoding_with(
            load_detectors([str(tmp_path / f"{n}.safetensors") for n in ("knn", "klm")], None)
        )


@pytest.mark.slow
def test_an_exported_detector_gives_the_scores_of_the_table(fitted, predict, pictures):
    session = pytest.importorskip("onnxruntime").InferenceSession
    pytest.importorskip("onnx")
    saved = ",".join(f"{fitted}/detectors/{name}.safetensors" for name in ("knn", "klm", "odin"))
    images = f"task.images={pictures}/second"
    found = predict(images, f"task.detector_file=[{saved}]", "task.onnx=true", *NO_DATA)
    assert {file.name for file in (found / "detectors").iterdir()} == {"knn.onnx", "klm.onnx"}
    manifest = json.loads((found / "manifest.json").read_text())
    assert "odin reads gradients or inner layers" in manifest["not_exported"]["odin"]
    expected = table(found)
    pixels = np.stack([read_rgb(path) for path in expected.path])
    for name in ("knn", "klm"):
        graph = session(found / "detectors" / f"{name}.onnx")
        logits, scores = graph.run(["logits", "score"], {"image": pixels})
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


@pytest.mark.slow
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


def test_too_few_held_out_images_are_said(predict, pictures):
    """Detectors that are fitted on val get half of it; the group is compared in any case."""
    found = predict(f"task.images={pictures}", "detector=[knn,react]", "data.val=30")
    manifest = json.loads((found / "manifest.json").read_text())
    of = manifest["detectors"]
    assert [of[name]["held_out"] for name in ("knn", "react")] == [30, 15]
    assert (of["react"]["threshold_score"], of["react"]["flagged"]) == (None, 0)
    assert 0 < of["react"]["group_p_value"] <= 1
    (shortage,) = [w for w in manifest["warnings"] if "No single image can be flagged" in w]
    assert "alpha=0.05 needs 19 ID images, there are 15, and no p-value is below 1/16" in shortage
    assert shortage in (found / "log.txt").read_text()


def words_of(folder):
    """What the terminal shows first, as it is kept; and the manifest."""
    blocks = json.loads((folder / "summary.json").read_text())["predict"]
    sentences = " ".join(b["text"] for b in blocks if b["kind"] == "text")
    return sentences, json.loads((folder / "manifest.json").read_text())


def test_flagged_images_are_compared_with_chance(fitted, trained):
    sentences, manifest = words_of(fitted)
    assert "Expected by chance, if all were ID: at most 4.0 (alpha 0.05 × 80)." in sentences
    for of in manifest["detectors"].values():
        n, rank = of["held_out"], int(0.05 * (of["held_out"] + 1))
        tail = stats.betabinom.sf(of["flagged"] - 1, 80, rank, n + 1 - rank)
        assert of["flagged_p_value"] == pytest.approx(tail)
        assert of["flagged_by_chance"] == pytest.approx(4)
    more = [name for name, of in manifest["detectors"].items() if of["flagged_p_value"] <= 0.05]
    said = sentences.partition("more than by chance")[2]
    assert all(f"{name} (p = " in said for name in more[:6])
    assert bool(more) == ("(p = " in said)
    # The best weights were chosen by the accuracy on these very images.
    accuracy = json.loads((trained / "manifest.json").read_text())["val_accuracy"]
    assert manifest["id_accuracy"] == pytest.approx(accuracy)
    assert f"ID accuracy of the network: {accuracy:.1%} [" in sentences
    assert "on 100 held-out ID images" in sentences
    assert sentences.partition(". ")[0] in " ".join(
        (fitted / "predictions.html").read_text().split()
    )


@pytest.mark.slow
def test_a_threshold_by_hand_is_kept_with_the_detector(predict, pictures, fitted):
    values = np.sort(table(fitted).knn_score.dropna())
    images, threshold = f"task.images={pictures}/second", float(values[40])
    found = predict(images, "detector=[knn]", f"task.threshold={threshold!r}")
    again = predict(images, f"task.detector_file={found}/detectors", *NO_DATA)
    saved = ood_lab.load_detector(found / "detectors" / "knn.safetensors")
    assert (saved.threshold, saved.alpha, saved.rule) == (threshold, None, "score >= threshold")
    false_alarms = int((saved.id_scores >= threshold).sum())
    low, high = wilson_interval(false_alarms / 100, 100)
    for folder in (found, again):
        rows, (_, manifest) = table(folder), words_of(folder)
        flagged = int((rows.knn_score >= threshold).sum())
        assert rows.knn_is_ood.tolist() == (rows.knn_score >= threshold).tolist()
        assert 0 < flagged < 50  # one of the images has this very score
        of = manifest["detectors"]["knn"]
        assert (of["alpha"], of["threshold_score"], of["flagged"]) == (None, threshold, flagged)
        assert (of["fpr"], of["fpr_ci_low"], of["fpr_ci_high"]) == (false_alarms / 100, low, high)
        contingency = [[flagged, 50 - flagged], [false_alarms, 100 - false_alarms]]
        fisher = stats.fisher_exact(contingency, alternative="greater").pvalue
        assert of["flagged_p_value"] == pytest.approx(fisher)
        fpr = f"knn {false_alarms / 100:.1%} [{100 * low:.1f}, {100 * high:.1f}] (n = 100)"
        assert fpr in " ".join((folder / "predictions.html").read_text().split())
        np.testing.assert_allclose(rows.knn_p_value, saved.p_values(torch.tensor(rows.knn_score)))
    at_alpha = predict(images, f"task.detector_file={found}/detectors", "task.alpha=0.1", *NO_DATA)
    rows = table(at_alpha)
    assert rows.knn_is_ood.tolist() == (rows.knn_p_value <= 0.1).tolist()


def test_a_threshold_that_detects_given_ood_images(predict, pictures, trained, fitted):
    """Of all OOD datasets together, with the scores that the score task finds; also in parts."""
    images = f"task.images={pictures}/second"
    found = predict(images, "detector=[knn,odin,mds_ensemble]", "task.tpr=0.9")
    scores = pd.read_parquet(trained / "scores.parquet").query("dataset != 'test'")
    sentences, manifest = words_of(found)
    assert manifest["threshold_from"] == {
        "tpr": 0.9,
        "ood": dict.fromkeys(scores.dataset.unique(), 8),
    }
    names = scores.dataset.unique().tolist()
    assert f"on 40 images of the OOD datasets {', '.join(names[:-1])} and {names[-1]}" in sentences
    for name in ("knn", "odin", "mds_ensemble"):
        of = manifest["detectors"][name]
        assert of["threshold_score"] == pytest.approx(scores[name].nlargest(36).iloc[-1], rel=1e-5)
        assert of["tpr"] == 0.9
        saved = ood_lab.load_detector(found / "detectors" / f"{name}.safetensors")
        assert of["fpr"] == (saved.id_scores >= saved.threshold).double().mean()
        assert f"90.0% by {name}" in sentences
        rows = table(found)
        assert (
            rows[f"{name}_is_ood"].tolist()
            == (rows[f"{name}_score"] >= of["threshold_score"]).tolist()
        )
    parts = predict(
        images, f"task.detector_file={fitted}/detectors/odin.safetensors", "task.tpr=0.9",
        "task.shard_size=32", "task.batch_size=16",
    )  # fmt: skip
    rows = pd.concat(map(pd.read_parquet, sorted((parts / "predictions").glob("*.parquet"))))
    whole = table(found)
    np.testing.assert_allclose(rows.odin_score, whole.odin_score, rtol=1e-5)
    assert rows.odin_is_ood.tolist() == whole.odin_is_ood.tolist()
    assert words_of(parts)[1]["detectors"]["odin"]["tpr"] == 0.9


@pytest.mark.slow
def test_the_smallest_numbers_are_sentences(predict, pictures):
    """One image and one held-out image; all flagged, and none."""
    one = (f"task.images={pictures}/first/000.png", "data.val=1", "detector=[knn]")
    for threshold, flagged, p in ((-1e9, 1, 1.0), (1e9, 0, 1.0)):
        folder = predict(*one, f"task.threshold={threshold}")
        sentences, manifest = words_of(folder)
        of = manifest["detectors"]["knn"]
        assert (of["held_out"], of["flagged"], of["flagged_p_value"]) == (1, flagged, p)
        assert f"Of 1 image, knn flags {flagged} (" in sentences
        assert "This is not significantly more than by chance" in sentences
        assert (folder / "predictions.html").exists()
        assert "is skipped (" not in (folder / "log.txt").read_text()


@pytest.fixture(scope="module")
def own(tmp_path_factory, outputs, pictures):
    """Three classes in a folder, and a network trained on the split of seed 0."""
    folder = tmp_path_factory.mktemp("own")
    data = VesselsDataModule(**SIZES)
    data.setup()
    train = data.splits["train"]
    for row in np.flatnonzero(train.labels.numpy() < 3):
        place = folder / train.classes[int(train.labels[row])] / f"{row:03}.png"
        place.parent.mkdir(exist_ok=True)
        train.load_image(int(row)).save(place)
    line = ("data=folder", f"data.id.train={folder}", "data.split=[0.4,0.5,0.1]")
    line += (f"data.ood.second={pictures}/second", "detector=[msp]", "trainer.max_epochs=1")
    line += ("logger=none", "task.report=false", "name=own", f"paths.outputs={outputs}")
    assert call("train.py", *line) == 0
    return folder, run_folders(outputs / "own")[-1]


def split_paths(run, split):
    return set(pd.read_csv(run / "splits" / f"{split}.csv").path)


@pytest.mark.slow
def test_images_of_another_split_of_the_network_do_not_calibrate(own, predict, pictures):
    """The training images of ``ckpt`` are those that its run has recorded."""
    _, run = own
    arguments = (f"task.images={pictures}/first", "detector=[msp]", f"ckpt={run}", "task.alpha=0.2")
    same = words_of(predict(*arguments))[1]
    assert same["warnings"] == []
    held_out = sum(len(split_paths(run, split)) for split in ("val", "test"))
    assert same["detectors"]["msp"]["held_out"] == held_out
    folder = predict(*arguments, "data.split_seed=1")
    val = split_paths(folder, "val") | split_paths(folder, "test")
    shared = val & split_paths(run, "train")
    assert 0 < len(shared) < len(val)
    manifest = words_of(folder)[1]
    (warning,) = manifest["warnings"]
    assert f"{len(shared)} of {len(val)} validation images are also training images" in warning
    assert manifest["detectors"]["msp"]["held_out"] == len(val) - len(shared)
    assert manifest["id_accuracy_n"] == len(val) - len(shared)
    assert "They are excluded from the calibration" in (folder / "predictions.html").read_text()


@pytest.mark.slow
def test_copies_of_training_images_do_not_calibrate(own, predict, pictures, tmp_path, capsys):
    source, run = own
    val = tmp_path / "val"
    for path in sorted(source.glob("*/*.png")):  # every other one as it is
        copy = val / path.parent.name / f"copy of {path.name}"
        copy.parent.mkdir(parents=True, exist_ok=True)
        image = Image.open(path)
        (image if int(path.stem) % 2 else image.rotate(180)).save(copy)
    copies = [path for path in val.glob("*/*.png") if int(path.stem[-3:]) % 2]
    n = len(list(val.glob("*/*.png")))
    arguments = (f"task.images={pictures}/first", "detector=[msp]", f"ckpt={run}", "task.alpha=0.2")
    data = ("data=folder", f"data.id.train={source}", f"data.id.val={val}")
    manifest = words_of(predict(*arguments, *data, "data.split=[0.9,0.05,0.05]"))[1]
    (warning,) = manifest["warnings"]
    held_out = manifest["detectors"]["msp"]["held_out"]
    assert f"{n - held_out} of {n} validation images are also training images" in warning
    assert n - len(copies) <= held_out < n
    capsys.readouterr()
    assert predict(*arguments, *data[:2], f"data.id.val={source}", f"data.id.test={val}") is None
    assert "validation images are also training images" in " ".join(capsys.readouterr().err.split())


def test_thresholds_that_clash_are_one_line(predict, pictures, capsys):
    images = f"task.images={pictures}/first"
    cases = {
        "task.alpha and task.threshold exclude each other": ("task.alpha=0.1", "task.threshold=1"),
        "task.threshold and task.tpr exclude each other": ("task.threshold=1", "task.tpr=0.5"),
        "task.threshold=0.5 is one score for 2 detectors": ("task.threshold=0.5",),
        "task.threshold names 'kn': did you mean 'knn'?": ("task.threshold={kn: 1, msp: 2}",),
        "task.threshold has no score for msp": ("task.threshold={knn: 1}",),
        "task.threshold=inf: give a finite number": ("task.threshold=inf",),
        "task.tpr=1.5: give a number up to 1": ("task.tpr=1.5",),
    }
    for message, arguments in cases.items():
        assert predict(images, "detector=[knn,msp]", *arguments) is None
        error = capsys.readouterr().err.strip().splitlines()[-1]
        assert error.startswith("error:")
        assert message in error


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
