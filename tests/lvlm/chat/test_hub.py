"""Models by their id on the hub, in a cache on this machine."""

import shutil

import huggingface_hub
import pytest
from huggingface_hub import constants

from ood_lab.common.errors import UserError
from ood_lab.lvlm.answers.answer_files import AnswerStore
from ood_lab.lvlm.answers.answer_requests import answers_to
from ood_lab.lvlm.chat.model_folder import ModelFolder
from ood_lab.lvlm.chat.transformers import TransformersChat
from ood_lab.lvlm.questions.question_files import Question
from ood_lab.models.loading import hub_models

TINY = ModelFolder("shipped:tiny").path


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """A cache of the hub that has ``me/small``."""
    commit = "0" * 40
    place = tmp_path / "hub" / "models--me--small"
    shutil.copytree(TINY, place / "snapshots" / commit)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(hub_models, "_reachable", lambda: False)
    return place


def questions(count=3):
    return [Question(f"q{i}", "yes_no", f"{i}.png", "Is there a cat?", "yes") for i in range(count)]


def test_a_model_of_the_cache_answers_as_its_folder_does(cached, scene_images, tmp_path):
    by_id, by_path = (TransformersChat(path) for path in ("me/small", "shipped:tiny"))
    assert by_id.made_with["model"] == "small"
    assert by_id.made_with["revision"] == by_path.made_with["revision"]
    replies = [
        [a.response for a in answers_to(questions(), scene_images, model, AnswerStore(path))]
        for model, path in ((by_id, tmp_path / "a.jsonl"), (by_path, tmp_path / "b.jsonl"))
    ]
    assert replies[0] == replies[1]


def test_what_is_not_here_is_one_line_that_says_what_to_do(cached, monkeypatch):
    with pytest.raises(UserError, match=r"lvlm.path=me/large is .*give lvlm.download=true"):
        _ = TransformersChat("me/large").made_with
    with pytest.raises(UserError, match="cannot be downloaded"):
        _ = TransformersChat("me/large", download=True).made_with
    asked = {}

    def fetch(name, **options):
        asked.update(name=name, **options)
        return str(TINY)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    assert TransformersChat("me/large", download=True).made_with["model"] == "large"
    assert (asked["name"], asked["local_files_only"]) == ("me/large", False)
    with pytest.raises(UserError, match="is not a directory"):
        _ = ModelFolder("me/small", "model.path").revision  # training reads folders alone
