"""Runs of each kind of network by command, against the same network as a plain module."""

import json

import pandas as pd
import pytest
import torch
from cli import call, run_folders
from photos import write_photos
from PIL import Image
from tiny_net import TinyNet, write_hub

SMALL = ("metrics.n_bootstrap=20", "logger=none", "data.num_workers=0", "trainer=cpu")
NO_PAGE = "task.report=false"
SIZE = ("model.backbone.input_size=32", "model.backbone.mean=0.5", "model.backbone.std=0.5")
MODULE = ("model=module", "model.pretrained=true", *SIZE)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("sources")
    return root, write_photos(root, (36, 34), "png")


@pytest.fixture
def run(photos):
    root, data = photos

    def run(*arguments, detectors="msp,mds"):
        outputs = root / str(len(list(root.iterdir())))
        given = (*data, *SMALL, f"detector=[{detectors}]", f"paths.outputs={outputs}")
        assert call("eval.py", *given, f"paths.features={outputs}/features", *arguments) == 0
        (folder,) = run_folders(outputs)
        return folder

    return run


def same_numbers(ours, theirs):
    a, b = (pd.read_parquet(folder / "results.parquet") for folder in (ours, theirs))
    assert a["value"].notna().any()
    pd.testing.assert_frame_equal(
        a.drop(columns="model"), b.drop(columns="model"), rtol=0, atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("head", ["linear", pytest.param("nearest_mean", marks=pytest.mark.slow)])
def test_features_of_torch_hub_get_a_head_on_id_train(photos, run, capsys, head):
    hub = photos[0] / "hub"
    hub = hub if hub.exists() else write_hub(hub)
    net = ("_target_=torch.hub.load", f"repo_or_dir={hub}", "model=features", "source=local")
    model = ("model=module", "model.pretrained=true", "model.name=features")
    model += tuple(f"model.net.{part}" for part in net)
    line = (*model, *SIZE, f"model.head={head}", NO_PAGE)
    fitted = run(*line)
    words = " ".join(capsys.readouterr().out.split())
    kind = head.replace("_", " ")
    assert f"TinyNet: a {kind} head was fitted on the" in words
    manifest = json.loads((fitted / "manifest.json").read_text())
    assert manifest["fitted_head"]["kind"] == head
    assert manifest["fitted_head"]["train_accuracy"] > 0.9
    assert manifest["id_accuracy"] > 0.9
    assert manifest["title"].startswith(f"features ({kind} head fitted on ID train) on")
    plain = run(*MODULE, "model.net._target_=tiny_net.bare", f"model.head={head}", NO_PAGE)
    same_numbers(fitted, plain)
    # The same command finds its results, though Python has compiled the repository meanwhile.
    outputs = [f"paths.outputs={fitted.parents[2]}", f"paths.features={fitted.parents[2]}/features"]
    assert call("eval.py", *photos[1], *SMALL, "detector=[msp,mds]", *line, *outputs) == 0
    assert "already done" in capsys.readouterr().out


def test_a_dry_run_fits_no_head(photos, capsys):
    root, data = photos
    features = root / "dry" / "features"
    model = (*MODULE, "model.net._target_=tiny_net.bare", "model.head=linear")
    given = (*data, *SMALL, f"paths.features={features}", *model)
    assert call("eval.py", "task=preflight", *given) == 0
    assert call("eval.py", "task=preflight", "experiment=shift_report", *given) == 0
    assert capsys.readouterr().out.count("1 of 1 jobs can run; nothing was started") == 2
    assert not features.exists()


@pytest.mark.slow
@pytest.mark.parametrize("script", ["train.py", "eval.py"])
def test_weights_of_a_path_are_not_left_out(photos, tmp_path, capsys, script):
    data = photos[1]
    model = ("model=hf", f"model.path={tmp_path}", "model.pretrained=false")
    given = (*data, *SMALL, f"paths.outputs={tmp_path}/outputs", f"paths.features={tmp_path}/f")
    assert call(script, *given, *model) == 1
    error = capsys.readouterr().err.strip()
    assert f"model.pretrained=false: the weights of model.path={tmp_path} are always" in error
    assert len(error.splitlines()) == 1


@pytest.mark.slow
def test_a_classifier_of_hugging_face_scores_as_its_own_pipeline(photos, run, tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "num_labels": 3}
    config = transformers.ResNetConfig(layer_type="basic", **sizes)
    model = transformers.ResNetForImageClassification(config).eval()
    model.save_pretrained(tmp_path)
    processor = transformers.ViTImageProcessor(size={"height": 24, "width": 24})
    processor.save_pretrained(tmp_path)
    folder = run("model=hf", f"model.path={tmp_path}", NO_PAGE)
    scores = pd.read_parquet(folder / "scores.parquet")
    paths = pd.read_csv(folder / "splits" / "noise.csv")["path"]
    images = [Image.open(path).convert("RGB") for path in paths]
    with torch.no_grad():
        logits = model(**processor(images=images, return_tensors="pt")).logits
    ours = torch.tensor(scores[scores["dataset"] == "noise"]["msp"].to_numpy()).float()
    torch.testing.assert_close(ours, -logits.softmax(dim=1).amax(dim=1), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_what_cannot_be_is_said_before_any_work(photos, capsys):
    root, data = photos
    line = (*data, *SMALL, f"paths.outputs={root}/refused")
    wrong = {
        "model.download=true": ("model=hf", "model.path=nobody/nothing"),
    }
    for says, model in wrong.items():
        assert call("eval.py", *line, *model) == 1
        error = capsys.readouterr().err.strip()
        assert says in error
        assert len(error.splitlines()) == 1
    assert not run_folders(root / "refused")


@pytest.mark.slow
def test_logits_that_depend_on_chance_are_refused_or_on_the_page(photos, run, capsys):
    model = (*MODULE, "model.net._target_=tiny_net.DropoutNet", "model.head=fc", NO_PAGE)
    assert call("eval.py", *photos[1], *SMALL, *model, f"paths.outputs={photos[0]}/no") == 1
    words = " ".join("".join(capsys.readouterr()).split())
    assert "runs twice on the same images" in words
    assert "model.allow_random=true" in words
    manifest = json.loads((run(*model, "model.allow_random=true") / "manifest.json").read_text())
    assert any("runs twice on the same images" in text for text in manifest["warnings"])


class Entries(TinyNet):
    """What several networks return: a dict."""

    def forward(self, image):
        features = torch.relu(self.conv(image)).mean((2, 3))
        return {"classes": self.fc(features), "embedding": features}


@pytest.mark.slow
def test_entries_of_an_output_are_chosen_by_command(photos, run, capsys):
    model = (*MODULE, f"model.net._target_={__name__}.Entries", NO_PAGE)
    assert call("eval.py", *photos[1], *SMALL, *model, f"paths.outputs={photos[0]}/no") == 1
    words = " ".join("".join(capsys.readouterr()).split())
    assert "model.output=KEY chooses one of classes, embedding" in words
    entries = ("model.output=classes", "model.features=embedding")
    plain = run(*MODULE, "model.net._target_=tiny_net.TinyNet", "model.head=fc", NO_PAGE)
    same_numbers(run(*model, *entries), plain)
    logits = run(*model, "model.output=classes", "model.features=conv")
    manifest = json.loads((logits / "manifest.json").read_text())
    assert manifest["head"] == "black box"


@pytest.fixture
def flat(photos):
    """The ID photographs in one folder: no labels."""
    root = photos[0] / "flat"
    if not root.exists():
        root.mkdir()
        for path in sorted((photos[0] / "id").glob("*/*.png")):
            (root / f"{path.parent.name}{path.name}").write_bytes(path.read_bytes())
    return f"data.id.train={root}"


@pytest.mark.slow
def test_a_program_gives_logits_only(photos, run, capsys, tmp_path):
    torch.jit.trace(TinyNet().eval(), torch.zeros(2, 3, 32, 32)).save(str(tmp_path / "net.pt"))
    folder = run("model=exported", f"model.path={tmp_path}/net.pt", *SIZE, detectors="msp,klm,vim")
    words = " ".join(capsys.readouterr().out.split())
    assert "skipped vim: vim needs features and the weights of a linear head, which net.pt" in words
    assert "The network gives logits only, so detectors of features are skipped." in words
    plain = run(*MODULE, "model.net._target_=tiny_net.TinyNet", NO_PAGE, detectors="msp,klm")
    same_numbers(folder, plain)


BARE = (*MODULE, "model.net._target_=tiny_net.bare", "model.head=none")


@pytest.mark.slow
def test_features_alone_are_scored_without_labels(run, flat, capsys):
    folder = run(*BARE, flat, "detector.knn.k=5", detectors="knn,mds,gmm,msp,rmds")
    words = " ".join(capsys.readouterr().out.split())
    assert "skipped msp: msp needs logits, which TinyNet does not give" in words
    assert "rmds is skipped: RMDS needs class labels" in words
    assert "The network gives features only, so detectors of logits are skipped." in words
    assert (folder / "report.html").exists()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["head"] == "features only"


def test_new_images_are_compared_with_unlabelled_ones(photos, run, flat):
    onnxruntime = pytest.importorskip("onnxruntime")
    line = ("task=predict", f"task.images={photos[0]}/ood", "task.alpha=0.2", "task.onnx=true")
    folder = run(*BARE, flat, *line, "detector.knn.k=5", detectors="knn,mds")
    found = pd.read_csv(folder / "predictions.csv")
    assert found["predicted"].isna().all()
    assert found["knn_is_ood"].all()
    session = onnxruntime.InferenceSession(folder / "detectors" / "mds.onnx")
    assert [output.name for output in session.get_outputs()] == ["score", "p_value", "is_ood"]


@pytest.mark.slow
def test_features_alone_are_not_trained(photos, flat, capsys):
    assert call("train.py", *photos[1], *SMALL, *BARE, f"paths.outputs={photos[0]}/no") == 1
    assert "gives features only, which train.py cannot train" in capsys.readouterr().err
