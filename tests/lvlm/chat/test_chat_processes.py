"""A local model in two processes: the same answers, each asked once, also after a kill."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from ood_lab.common.errors import UserError
from ood_lab.lvlm.answers.answer_files import AnswerStore
from ood_lab.lvlm.answers.answer_requests import answers_to
from ood_lab.lvlm.chat.model_folder import ModelFolder
from ood_lab.lvlm.chat.transformers import TransformersChat
from ood_lab.lvlm.questions.question_files import Question

pytest.importorskip("transformers")
IMAGES, EACH = 8, 3
THINGS = ("mug", "boat", "cat")
#: What a command does: the first of its processes asks, the paths are its arguments.
ASK = """
import os
import sys
from pathlib import Path
from test_chat_processes import asked_in
if __name__ == "__main__" and os.environ.get("RANK", "0") == "0":
    asked_in(Path(sys.argv[1]), Path(sys.argv[2]), devices=2, batch_size=1)
"""

#: What the first process of a job of two finds.
OF_SLURM = {
    **{"SLURM_JOB_ID": "7", "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2"},
    **{"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"},
}


def questions():
    return [
        Question(f"{i}/{n}", "yes_no", f"{i}.png", f"Is there a {thing} in the image?", "yes")
        for i in range(IMAGES)
        for n, thing in enumerate(THINGS)
    ]


def asked_in(scene_images, path, **settings):
    model = TransformersChat("shipped:tiny", max_new_tokens=8, device="cpu", **settings)
    return answers_to(questions(), scene_images, model, AnswerStore(path))


@pytest.fixture(scope="module")
def alone(scene_images, tmp_path_factory):
    return asked_in(scene_images, tmp_path_factory.mktemp("alone") / "answers.jsonl", batch_size=4)


def same(found, alone):
    assert [a.question_id for a in found] == [a.question_id for a in alone]
    assert [a.key for a in found] == [a.key for a in alone]
    assert [a.response for a in found] == [a.response for a in alone]
    assert [a.p_yes for a in found] == pytest.approx([a.p_yes for a in alone], abs=1e-4)


def lines(path):
    return path.read_text().count("\n") if path.exists() else 0


@pytest.mark.slow
def test_two_processes_answer_as_one_does(scene_images, alone, tmp_path):
    path = tmp_path / "answers.jsonl"
    same(asked_in(scene_images, path, batch_size=4, devices=2), alone)
    assert lines(path) == IMAGES * EACH  # none was asked twice


@pytest.mark.slow
def test_two_processes_within_a_slurm_job_of_two(scene_images, alone, tmp_path, monkeypatch):
    """Those of the job are others, which ask nothing."""
    for name, value in OF_SLURM.items():
        monkeypatch.setenv(name, value)
    same(asked_in(scene_images, tmp_path / "a.jsonl", batch_size=4, devices=2), alone)


@pytest.mark.slow
def test_two_processes_within_torchrun_of_two(scene_images, alone, tmp_path):
    path, (script, environment) = tmp_path / "answers.jsonl", command(tmp_path)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    line = [sys.executable, *torchrun, str(script), str(scene_images), str(path)]
    subprocess.run(line, env=environment, check=True, timeout=200)
    assert lines(path) == IMAGES * EACH
    same(asked_in(scene_images, path, batch_size=4), alone)


def command(folder):
    """The file of the command, and its environment."""
    script = folder / "ask.py"
    script.write_text(ASK)
    return script, {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.mark.slow
def test_what_a_kill_left_is_not_asked_again(scene_images, alone, tmp_path):
    path, (script, environment) = tmp_path / "answers.jsonl", command(tmp_path)
    asking = subprocess.Popen(
        [sys.executable, str(script), str(scene_images), str(path)], env=environment
    )
    until = time.monotonic() + 200
    while lines(path) < 3:
        assert asking.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)
    asking.send_signal(signal.SIGKILL)
    asking.wait()
    before = path.read_text().splitlines()
    same(asked_in(scene_images, path, batch_size=4, devices=2), alone)
    after = path.read_text().splitlines()
    assert after[: len(before)] == before
    assert len(after) == IMAGES * EACH


@pytest.mark.slow
def test_a_copy_that_cannot_be_loaded_is_said_in_one_line(scene_images, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(ModelFolder("shipped:tiny").path, broken)
    (broken / "model.safetensors").write_bytes(b"none")
    model = TransformersChat(str(broken), batch_size=1, device="cpu", devices=2)
    with pytest.raises(UserError, match="cannot be loaded") as caught:
        answers_to(questions(), scene_images, model, AnswerStore(tmp_path / "answers.jsonl"))
    assert "\n" not in str(caught.value)


def test_more_devices_than_there_are_or_spread_ones_are_refused():
    with pytest.raises(UserError, match=r"lvlm.devices=9999: this machine has \d+ CPU core"):
        TransformersChat("shipped:tiny", device="cpu", devices=9999)
    with pytest.raises(UserError, match="remove lvlm"):
        TransformersChat("shipped:tiny", devices=2, device_map="auto")
