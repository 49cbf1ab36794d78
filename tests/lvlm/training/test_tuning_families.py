"""A step of fine-tuning over the families of vision-language models."""

from functools import partial

import pytest
import torch
from PIL import Image

from ood_lab.lvlm.training.examples import IGNORED, ConversationRows, Example, conversation
from ood_lab.lvlm.training.tuning_module import VlmTuning

pytest.importorskip("transformers")

from vlm_families import FAMILIES, SIZES, made

#: An encoder, whose decoder is taught in another way; question and image that meet before the
#: language model; processors that end every text with a mark of their own.
LEFT_OUT = {
    *("florence2", "blip_2_t5"),
    *("kosmos2", "instructblip", "blip_2"),
    *("paligemma", "chameleon"),
}
USUAL = {"llava", "qwen2_vl", "idefics3", "gemma3", "mllama"}


def families():
    return [
        name if name in USUAL else pytest.param(name, marks=pytest.mark.slow)
        for name in FAMILIES
        if name not in LEFT_OUT
    ]


@pytest.mark.parametrize("name", families())
def test_a_step_learns_the_answers_alone(name):
    if name == "smolvlm":
        pytest.importorskip("num2words")
    model, processor = made(name)
    answers = ("Yes", "No, there are three of them")
    examples = [
        Example(Image.new("RGB", size, color), [conversation("Is there a dog?", answer)])
        for size, color, answer in zip(SIZES, ("red", "blue"), answers, strict=False)
    ]
    batch = ConversationRows(processor)(examples)
    labels = batch["inputs"]["labels"]
    learned = [processor.tokenizer.decode(row[row != IGNORED]) for row in labels]
    assert learned == [f"{answer}<end>" for answer in answers]
    # What is learned is predicted from what comes before it: a later word changes nothing.
    inputs = {k: v for k, v in batch["inputs"].items() if k != "labels"}
    inputs["pixel_values"] = inputs["pixel_values"].to(model.dtype)
    last = int((labels[1] != IGNORED).nonzero()[-1])
    changed = dict(inputs, input_ids=inputs["input_ids"].clone())
    changed["input_ids"][1, last] = processor.tokenizer.encode("x", add_special_tokens=False)[0]
    with torch.no_grad():
        one, other = (model(**each).logits[1, last - 2] for each in (inputs, changed))
    torch.testing.assert_close(one, other)
    module = VlmTuning(model.train(), processor, partial(torch.optim.SGD, lr=0.1))
    loss = module.language_loss(batch)
    loss.backward()
    assert loss.isfinite()
    assert any(p.grad is not None and p.grad.any() for p in model.parameters())
