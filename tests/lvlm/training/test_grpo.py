"""Rewards and losses of the reinforcement fine-tuning, by hand; a training that does something."""

import math

import pytest
import torch
from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.lvlm.benchmarks.oric.published_files import (
    OricItem,
    problem_of,
    write_bench,
    write_train,
)
from ood_lab.lvlm.benchmarks.oric.training_questions import OricTraining
from ood_lab.lvlm.training.grpo import (
    accuracy_reward,
    advantages,
    format_reward,
    grpo_loss,
    k3,
    token_log_probs,
)

WELL = "<REASONING>I look.</REASONING> <SOLUTION>yes</SOLUTION>"


@pytest.mark.parametrize(
    ("reply", "right", "formed"),
    [
        (WELL, 1, 1),
        (f"\n {WELL} \n", 1, 1),
        (WELL.replace(" <S", "\n<S"), 1, 1),
        (WELL.replace("yes", "YES"), 1, 1),
        (WELL.replace("yes", " _Yes_ "), 1, 1),
        (WELL.replace("yes", "no"), 0, 1),
        (WELL.replace("yes", "maybe"), 0, 1),
        (f"Well. {WELL}", 1, 0),
        (f"{WELL} Done.", 1, 0),
        (f"{WELL}{WELL}", 1, 0),
        ("<SOLUTION>yes</SOLUTION>", 1, 0),
        ("No, wait: yes.", 1, 0),
        ("Yes? No.", 0, 0),
        ("I know nothing of eyes", 0, 0),
        ("", 0, 0),
    ],
)
def test_rewards(reply, right, formed):
    assert accuracy_reward(reply, "<SOLUTION>yes</SOLUTION>") == right
    assert accuracy_reward(reply, "yes") == right
    assert format_reward(reply, "yes") == formed


def test_advantages_are_standardised_with_the_sample_s_deviation():
    found = advantages(torch.tensor([1.0, 0.0, 0.0, 1.0]))
    assert found.tolist() == pytest.approx(
        [0.5 / math.sqrt(1 / 3)] * 1 + [-0.866025] * 2 + [0.866025], abs=1e-5
    )
    assert advantages(torch.ones(8)).tolist() == [0.0] * 8
    assert advantages(torch.ones(1)).tolist() == [0.0]


def test_losses_by_hand():
    """Two replies, of two tokens and of one; log pi - log ref = log 2 in the first token."""
    log_pi = torch.tensor([[-1.0, -2.0], [-0.5, -9.0]], requires_grad=True)
    log_ref = torch.tensor([[-1.0 - math.log(2), -2.0], [-0.5, 5.0]])
    mask = torch.tensor([[True, True], [True, False]])
    kl = 0.5 + math.log(2) - 1
    assert k3(log_pi, log_ref)[0].tolist() == pytest.approx([kl, 0.0], abs=1e-6)
    advantage = torch.tensor([1.0, -1.0])
    released = grpo_loss(log_pi, log_ref, advantage, mask, 0.1, "reference")
    wanted = ((-(2 + 1) / 2 + 0.1 * kl / 2) + (1.0 + 0)) / 2
    assert released.item() == pytest.approx(wanted, abs=1e-6)
    plain = grpo_loss(log_pi, log_ref, advantage, mask, 0.0, "policy")
    assert plain.item() == pytest.approx(0.0, abs=1e-6)
    plain.backward()
    # The gradient of the policy's: minus advantage over tokens and replies, none beyond the end.
    assert log_pi.grad.flatten().tolist() == pytest.approx([-0.25, -0.25, 0.5, 0.0])


def test_the_released_ratio_is_bounded_but_not_clipped():
    log_pi, log_ref = torch.tensor([[0.0]]), torch.tensor([[-50.0]])
    mask, one = torch.ones(1, 1, dtype=torch.bool), torch.ones(1)
    assert grpo_loss(log_pi, log_ref, one, mask, 0.0, "reference").item() == -100.0


def test_log_probabilities_of_tokens():
    logits = torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(0))
    tokens = torch.tensor([[0, 1, 2], [3, 4, 5]])
    wanted = -torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), tokens.flatten(), reduction="none"
    )
    torch.testing.assert_close(token_log_probs(logits, tokens).flatten(), wanted)


@pytest.fixture
def files(tmp_path):
    """Eight training questions about images that are red (a dog) or blue (no dog)."""
    items = []
    for number in range(8):
        there = number % 2 == 0
        Image.new("RGB", (96, 96), "red" if there else "blue").save(tmp_path / f"{number}.png")
        items.append(
            OricItem(
                number + 1, f"{number}.png", "dog", problem_of("dog"), "yes" if there else "no"
            )
        )
    write_train(items, tmp_path / "oric_train.json")
    write_bench(items, tmp_path / "oric_bench.json")
    return tmp_path


def test_prompts_and_held_out_images(files):
    data = OricTraining(str(files / "oric_train.json"), str(files), "plain", val_share=0.25)
    assert (len(data.train), len(data.val)) == (6, 2)
    assert not {i.image for i in data.train.items} & {i.image for i in data.val.items}
    prompt = data.val[0]
    assert prompt.text.startswith("Question: Is there a dog in the image?\nPlease answer")
    reasoned = OricTraining(str(files / "oric_train.json"), str(files)).train[0]
    assert reasoned.text.endswith("(put yes or no here) </SOLUTION>.")


def test_wrong_training_files_are_one_error(files):
    with pytest.raises(UserError, match="training on them would make its results worthless"):
        OricTraining(str(files / "oric_bench.json"), str(files))
    with pytest.raises(UserError, match=r"model\.prompts\.images=DIR"):
        OricTraining(str(files / "oric_train.json"))
    (files / "3.png").unlink()
    with pytest.raises(UserError, match=r"1 of 8 images .* such as 3\.png"):
        OricTraining(str(files / "oric_train.json"), str(files))


def test_an_image_is_seen_once_and_every_reply_has_its_own_probability(files):
    """The features that replies share give what the pixels of every row give."""
    from ood_lab.lvlm.chat.model_folder import ModelFolder
    from ood_lab.lvlm.training.grpo import VlmGrpo

    folder = ModelFolder("shipped:tiny")
    processor, model = folder.load_processor(), folder.load_model("float32")
    seen = []
    model.model.vision_tower.register_forward_hook(lambda *made: seen.append(len(made[1][0])))
    tuning = VlmGrpo(model, processor, torch.optim.AdamW, [accuracy_reward], max_new_tokens=3)
    prompt = OricTraining(str(files / "oric_train.json"), str(files), "plain").train[0]
    tuning._sampled(prompt, 1, sample=True)  # the first one also sees whether features fit
    seen.clear()
    replies = tuning._sampled(prompt, 4, sample=True)
    found = tuning._log_probs(model, replies)
    assert seen == [1, 1]
    pixels = replies.pixels["pixel_values"].repeat(4, 1, 1, 1)
    logits = model(**replies.inputs, pixel_values=pixels).logits[:, replies.start - 1 : -1]
    torch.testing.assert_close(found, token_log_probs(logits, replies.tokens))


@pytest.mark.slow
@pytest.mark.parametrize("ratio", ["reference", "policy"])
def test_a_training_learns_what_is_rewarded(files, ratio):
    """A reward for one letter: an untrained model comes to say what has it."""
    import lightning as L
    from transformers import AutoConfig, AutoModelForImageTextToText

    from ood_lab.lvlm.chat.model_folder import ModelFolder
    from ood_lab.lvlm.training.grpo import VlmGrpo

    L.seed_everything(0, verbose=False)
    folder = ModelFolder("shipped:tiny")
    config = AutoConfig.from_pretrained(folder.path)
    data = OricTraining(str(files / "oric_train.json"), str(files), "plain", val_share=0.0)
    module = VlmGrpo(
        AutoModelForImageTextToText.from_config(config, dtype=torch.float32),
        folder.load_processor(),
        lambda p: torch.optim.AdamW(p, lr=1e-2),
        [lambda reply, truth: float("e" in reply)],
        beta=0.0,
        ratio=ratio,
        max_new_tokens=1,
    )
    before = {n: p.clone() for n, p in module._reference[0].named_parameters()}
    trainer = L.Trainer(
        max_epochs=6,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    shares = []
    module.on_train_epoch_end = lambda: shares.append(
        float(trainer.callback_metrics["train/reward"])
    )
    trainer.fit(module, data)
    assert shares[-1] > shares[0] + 0.2
    assert all(torch.equal(p, before[n]) for n, p in module._reference[0].named_parameters())
    assert not any(name.startswith("_reference") for name in module.state_dict())
