"""`task=preflight`: what is missing in a sweep, before anything runs."""

import pytest
from cli import call


def validated(capsys, script, *arguments):
    status = call(script, "-m", "task=preflight", "logger=none", *arguments)
    captured = capsys.readouterr()
    return status, " ".join(captured.out.split()), captured.err


@pytest.mark.slow
def test_a_sound_sweep(tmp_path, capsys):
    arguments = ("experiment=smoke", "seed=0,1", f"paths.outputs={tmp_path}")
    status, out, _ = validated(capsys, "train.py", *arguments)
    assert status == 0
    assert "2 of 2 jobs can run; nothing was started" in out
    assert out.count("new") == 2
    assert not list(tmp_path.iterdir())


def test_everything_missing_is_listed_at_once(tmp_path, capsys):
    status, out, error = validated(
        capsys,
        "eval.py",
        f"ckpt={tmp_path}/run",
        "data=folder",
        f"data.id.train={tmp_path}/photos",
        f"data.ood.mine={tmp_path}/a,{tmp_path}/b",
        "detector=[msp],[knn]",
        f"paths.outputs={tmp_path}/outputs",
    )
    assert status == 1
    assert not error
    for culprit in ("run' does not exist", "photos does not exist", "/a does not", "/b does not"):
        assert culprit in out, culprit
    assert "all jobs:" in out
    assert "job 1, 2:" in out
    assert "0 of 4 jobs can run" in out
    assert not (tmp_path / "outputs").exists()


def test_files_of_a_clip_are_listed_with_the_data(tmp_path, capsys):
    wanted = ("clip=vit_b16", f"clip.cache_dir={tmp_path}", "data=folder")
    folders = (f"data.id.train={tmp_path}/photos", f"data.ood.mine={tmp_path}/a")
    for arguments in (("task=shift_scores",), ("prompt=mcm", "detector=[]")):
        status, out, _ = validated(capsys, "eval.py", *arguments, *wanted, *folders)
        assert status == 1
        assert "CLIP ViT-B-16-quickgelu:" in out
        assert "photos does not exist" in out


def test_a_matrix_needs_neither_network_nor_images(tmp_path, capsys):
    status, out, _ = validated(capsys, "train.py", "model=laid", f"paths.outputs={tmp_path}")
    assert status == 0, out


@pytest.mark.slow
def test_choices_are_checked_for_every_job(tmp_path, capsys):
    arguments = ("experiment=smoke", f"paths.outputs={tmp_path}", "tuning=val_ood")
    sets = "tuning.sets=[container],[containr]"
    status, out, _ = validated(capsys, "train.py", *arguments, sets)
    assert status == 1
    assert "job 2: tuning.sets names 'containr'" in out
    assert "1 of 2 jobs can run" in out


@pytest.mark.slow
def test_a_mistyped_choice_stops_a_training_before_it_begins(tmp_path, capsys):
    arguments = ("experiment=smoke", f"paths.outputs={tmp_path}", "logger=none")
    status = call("train.py", *arguments, "tuning=val_ood", "tuning.sets=[containr]")
    assert status == 1
    assert "did you mean 'container'" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.ckpt"))
