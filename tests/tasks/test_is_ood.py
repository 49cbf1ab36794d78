"""`experiment=is_ood`: IS-OOD's published layout, made small, on stand-in images."""

import re

import pandas as pd
import pytest
import timm
import torch
from cli import call, run_folders
from PIL import Image

LEVELS = 4
HEATMAPS = ("heatmap_is_ood", "heatmap_is_ood_fpr95", "heatmap_is_ood_aupr_in")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("is_ood")
    rng = torch.Generator().manual_seed(0)

    def image(path, red):
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = torch.randint(0, 60, (32, 32, 3), generator=rng, dtype=torch.uint8).numpy()
        noise[..., 0] += red
        Image.fromarray(noise).save(path)

    for split, n in (("train", 12), ("val", 8)):
        for label, wnid in enumerate(("n01440764", "n01443537")):
            for i in range(n):
                image(root / "in1k" / split / wnid / f"{i}.png", 30 * label)
    (root / "lists").mkdir()
    for row in range(LEVELS):
        for column in range(LEVELS):
            lines = []
            for i in range(3 if (row, column) == (0, 0) else 12):
                name = f"n0{row}{column}/{row}{column}{i}.png"
                image(root / "in21k" / name, 60 + 30 * column)
                lines.append(f"{name} {row}")
            (root / "lists" / f"cov_{row}_sem_{column}.txt").write_text("\n".join(lines) + "\n")
    torch.manual_seed(0)
    net = timm.create_model("test_resnet", num_classes=2)
    torch.save(net.state_dict(), root / "net.pt")
    return root


@pytest.mark.slow
def test_published_lists_run_as_they_are(place, capsys):
    status = call(
        "eval.py",
        "experiment=is_ood",
        f"imagenet_1k={place}/in1k",
        f"imagenet_21k={place}/in21k",
        f"is_ood_lists={place}/lists",
        "model.name=test_resnet",
        f"model.weights={place}/net.pt",
        "model.backbone.num_classes=2",
        "detector=[msp,mds]",
        "data.num_workers=0",
        "metrics.n_bootstrap=20",
        "logger=none",
        f"paths.outputs={place}/outputs",
        figures=HEATMAPS,
    )
    assert status == 0, capsys.readouterr().err
    (folder,) = run_folders(place / "outputs")
    results = pd.read_parquet(folder / "results.parquet")
    cells = results[results.semantic_level.notna() & results.covariate_level.notna()]
    auroc = cells[(cells.detector == "msp") & (cells.metric == "auroc")]
    assert len(auroc) == LEVELS * LEVELS
    assert auroc.n_ood.sum() == 15 * 12 + 3
    small = auroc[auroc.n_ood < 10]
    assert len(small) == 1
    assert small.value.isna().all()  # N/A, not 0
    assert auroc[auroc.n_ood >= 10].value.notna().all()
    metrics = set(results.metric)
    for metric in ("auroc", "fpr95", "aupr_in", "aupr_out"):
        assert {f"correlation_semantic_{metric}", f"sensitivity_covariate_{metric}"} <= metrics
    for name in HEATMAPS:
        assert (folder / "figures" / f"{name}.png").exists()
    assert (
        "Ordered by semantic level: only levels are known." in (folder / "report.html").read_text()
    )


@pytest.mark.slow
def test_the_smallest_semantic_shift_is_a_measured_distance(tmp_path):
    """Figure 20: by distance in the run that measures it, and in one that takes its levels over."""
    common = ("experiment=smoke", "clip=tiny", "model=clip", "detector=[msp]", "logger=none")
    common = (*common, f"paths.outputs={tmp_path}", f"paths.features={tmp_path / 'features'}")
    assert call("eval.py", *common, "task=is_ood", "task.sets=[grid]", "task.levels=3") == 0
    (first,) = run_folders(tmp_path)
    levels = first / "levels.parquet"
    assert call("eval.py", *common, "task=score", f"data.levels={levels}", "name=again") == 0
    nearest = pd.read_parquet(levels).nsmallest(12, "semantic")
    for folder in run_folders(tmp_path):
        scores = pd.read_parquet(folder / "scores.parquet").set_index(["dataset", "index"])
        assert scores.loc["test", "semantic_degree"].isna().all()
        page = (folder / "report.html").read_text()
        assert "Ordered by semantic distance from ID train, as measured." in page
        shown = re.findall(r"grid #(\d+): predicted [^;]+; MSP ([0-9.]+); distance ([0-9.]+)", page)
        shown = list(dict.fromkeys(shown))  # below the picture, and for those who do not see it
        assert [int(index) for index, *_ in shown] == nearest["index"].tolist()
        for (index, msp, distance), measured in zip(shown, nearest["semantic"], strict=True):
            assert float(distance) == pytest.approx(measured, rel=6e-3)
            assert float(msp) == pytest.approx(-scores.loc[("grid", int(index)), "msp"], abs=6e-3)
