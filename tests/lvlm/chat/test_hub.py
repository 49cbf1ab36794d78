"""Models by their id on the hub, in a cache on this machine; vLLM as a stand-in."""

import math
import shutil
import sys
from types import SimpleNamespace

import huggingface_hub
import pytest
from cli import call
from huggingface_hub import constants

from ood_lab.common.errors import UserError
from ood_lab.lvlm.answers.answer_files import AnswerStore
from ood_lab.lvlm.answers.answer_requests import answers_to
from ood_lab.lvlm.chat.model_folder import ModelFolder
from ood_lab.lvlm.chat.transformers import TransformersChat
from ood_lab.lvlm.chat.vllm import VllmChat
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


@pytest.fixture
def vllm(monkeypatch):
    """A stand-in with the interface that vLLM documents."""
    made = SimpleNamespace(models=[], calls=[])

    class Model:
        def __init__(self, **settings):
            made.models.append(settings)

        def chat(self, messages, sampling_params, use_tqdm=True):
            made.calls.append(messages)
            if len(messages) > 1 and any("1?" in str(m) for m in messages):
                raise ValueError("the prompt is too long")
            if "1?" in str(messages):
                raise ValueError("this prompt is too long")
            assert all(p.max_tokens == 64 and p.temperature == 0 for p in sampling_params)
            odds = {
                3: SimpleNamespace(decoded_token="Yes", logprob=math.log(0.6)),
                4: SimpleNamespace(decoded_token=" no", logprob=math.log(0.2)),
            }
            said = SimpleNamespace(text="Yes", finish_reason="stop", token_ids=[3], logprobs=[odds])
            return [SimpleNamespace(outputs=[said], prompt_token_ids=[1, 2])] * len(messages)

    module = SimpleNamespace(LLM=Model, SamplingParams=SimpleNamespace)
    monkeypatch.setitem(sys.modules, "vllm", module)
    return made


def test_vllm_is_asked_as_it_documents(vllm, scene_images, tmp_path):
    model = VllmChat(str(TINY), batch_size=2, max_length=512)
    asked = [Question(f"q{i}", "yes_no", f"{i}.png", f"Is it {i}?", "yes") for i in range(4)]
    answers = answers_to(asked, scene_images, model, AnswerStore(tmp_path / "a.jsonl"))
    assert [a.response for a in answers] == ["Yes", "", "Yes", "Yes"]
    assert "too long" in answers[1].error
    assert answers[0].p_yes == pytest.approx(0.75)
    assert answers[0].usage["prompt_tokens"] == 2
    assert vllm.models[0]["max_model_len"] == 512
    assert len(vllm.models) == 1
    image, text = vllm.calls[0][0][0]["content"]
    assert image["image_url"]["url"].startswith("data:image/png;base64,")
    assert text["text"] == "Is it 0?"


def test_without_vllm_one_line_says_what_else_there_is(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "vllm", None)
    line = ("task=oodbench", "annotations.n=60", "lvlm=vllm", f"lvlm.path={TINY}", "logger=none")
    assert call("eval.py", *line, f"paths.outputs={tmp_path}") == 1
    assert "lvlm=openai" in " ".join(capsys.readouterr().err.split())
