"""A CLIP from a folder that knows nothing of the images measures how far they are."""

import json

import pytest
from cli import call, run_folders
from clip_towers import CONFIGS, network
from photos import write_photos
from safetensors.torch import save_file

from ood_lab.evaluation.shift import shift_encoder


@pytest.mark.slow
def test_an_untrained_clip_is_told_and_its_matrices_are_kept(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(shift_encoder, "LABELS", 6)
    monkeypatch.setattr(shift_encoder, "EPOCHS", 1)
    folder = tmp_path / "clip"
    folder.mkdir()
    described = {"model_cfg": CONFIGS["t-vit"], "preprocess_cfg": {}}
    (folder / "open_clip_config.json").write_text(json.dumps(described))
    state = {name: values.contiguous() for name, values in network("t-vit").state_dict().items()}
    save_file(state, folder / "open_clip_model.safetensors")
    line = (
        *("experiment=shift_report", *write_photos(tmp_path, (48, 40), "png"), "clip=open_clip"),
        *(f"clip.name=local-dir:{folder}", "task.report=false"),
        *("trainer.max_epochs=1", "detector=[msp,knn]"),
        *(
            "detector.knn.k=3",
            "metrics.n_bootstrap=20",
            "logger=none",
            f"paths.outputs={tmp_path}/out",
        ),
    )
    assert call("train.py", *line) == 0
    assert "no better than chance" in " ".join(capsys.readouterr().out.split())
    run = run_folders(tmp_path / "out")[-1]
    warnings = json.loads((run / "manifest.json").read_text())["warnings"]
    (told,) = (text for text in warnings if text.startswith("the CLIP"))
    assert "Its semantic and covariate shift mean nothing" in told
    (kept,) = (tmp_path / "out" / "laid").iterdir()
    assert "val/accuracy_semantic" in json.loads((kept / "held_out.json").read_text())
    learnt = (kept / "held_out.json").stat().st_mtime_ns
    again = [part for part in line if not part.startswith(("data", "trainer", "detector.knn"))]
    assert call("eval.py", *again, f"ckpt={run}", "detector.knn.k=4") == 0
    assert (kept / "held_out.json").stat().st_mtime_ns == learnt
