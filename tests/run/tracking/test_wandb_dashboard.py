"""What a workspace is made of, read back by the library's own models."""

import pandas as pd
import pytest
import yaml
from cli import call
from finished_runs import write_run

from ood_lab.run.tracking.experiment_loggers import summary_values

workspaces = pytest.importorskip("wandb_workspaces.workspaces.internal")


@pytest.fixture
def made(tmp_path):
    """It, read back, of two runs that differ in one setting and log levels of shift.

    Beside them lies a run that has measured distances alone.
    """
    measured = write_run(tmp_path / "one" / "measured", {"knn": (0.5, 0.5)}, detectors={})
    other = measured / "results.parquet"
    pd.read_parquet(other).assign(kind="shift").drop(columns="detector").to_parquet(other)
    for place, lr in (("aaaa", 0.1), ("bbbb", 0.2)):
        run = write_run(tmp_path / "one" / place, {"knn": (0.7, 0.9), "vim": (0.8, 0.9)})
        table = pd.read_parquet(run / "results.parquet")
        level = table[table.metric == "auroc"].assign(semantic_level=1.0, shift_level=None)
        pd.concat([table, level]).to_parquet(run / "results.parquet")
        config = {"model": {"lr": lr}, "paths": {"root": place}}
        (run / "config.yaml").write_text(yaml.safe_dump(config))
    line = ("task=wandb_dashboard", f"runs={tmp_path}/one", f"paths.outputs={tmp_path}/made")
    assert call("eval.py", *line, "push.wandb.entity=me", "push.wandb.offline=true") == 0
    (view,) = (tmp_path / "made").rglob("workspace.json")
    return (
        workspaces.View.model_validate_json(view.read_text()),
        summary_values(pd.read_parquet(run / "results.parquet")),
    )


def shown(panels):
    """``{title or kind: metrics}``."""
    found = {}
    for panel in panels:
        config = panel.config
        if panel.view_type == "Bar Chart":
            found[config.chart_title] = config.metrics
        elif panel.view_type == "Parallel Coordinates Plot":
            found["sweep"] = [column.accessor for column in config.columns]
        else:
            found.setdefault("importance", []).append(config.target_key)
    return found


def test_it_shows_what_the_runs_have_logged(made):
    view, values = made
    assert (view.entity, view.project) == ("me", "ood_lab")
    sections = view.spec.section.panel_bank_config.sections
    board, shift, sweep = (shown(section.panels) for section in sections)
    # The best comes first.
    assert board["Mean AUROC over the OOD sets"] == ["mean/vim/auroc", "mean/knn/auroc"]
    bars = [m for found in (board, shift) for m in found.values() if isinstance(m, list)]
    assert {metric for metrics in bars for metric in metrics} <= values.keys()
    assert shift["FPR95 on far"] == ["vim/far/fpr95", "knn/far/fpr95"]
    assert shift["AUROC of vim by semantic level"] == ["level/semantic/1/vim/auroc"]
    assert shift["DAD"] == ["vim/dad", "knn/dad"]
    goals = ["mean/vim/auroc", "mean/vim/fpr95"]
    assert sweep["sweep"] == ["config:model.value.lr", *(f"summary:{goal}" for goal in goals)]
    assert sweep["importance"] == goals


def test_runs_without_a_detector_are_refused(tmp_path, capsys):
    write_run(tmp_path / "one" / "aaaa", {})
    line = ("task=wandb_dashboard", f"runs={tmp_path}/one", f"paths.outputs={tmp_path}/made")
    assert call("eval.py", *line, "push.wandb.offline=true") == 1
    assert "none of these runs has scored a detector" in " ".join(capsys.readouterr().err.split())
