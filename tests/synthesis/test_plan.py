"""Prompts, plans and the files that a stopped run goes on with."""

import itertools
import json
import os
import re
import resource
import signal

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.shift import Decomposition, ShiftMeter
from ood_lab.synthesis import (
    Ledger,
    Prompts,
    PromptStyle,
    check_model,
    choose,
    image_seed,
    imagenet21k_synsets,
    keep_plan,
    licence,
    make_images,
    measure_prompts,
    parse_answer,
    read_styles,
    select_by_keyword,
    short_cells,
)


def test_the_shipped_styles_are_51_different_looks():
    styles = read_styles()
    assert len(styles) == len({s.name for s in styles}) == len({s.prompt for s in styles}) == 51
    assert all(s.prompt.count("{label}") == 1 for s in styles)


def test_a_style_file_of_stable_diffusion_xl_gives_the_styles_of_syn_is(tmp_path):
    names = [style.name.replace("pointilism", "pointillism") for style in read_styles()]
    entries = [
        {"name": f"x-{n}", "prompt": f"{n} of {{prompt}} .", "negative_prompt": n} for n in names
    ]
    entries.insert(0, {"name": "ads-advertising", "prompt": "{prompt}", "negative_prompt": ""})
    (tmp_path / "sdxl.json").write_text(json.dumps(entries))
    styles = read_styles(tmp_path / "sdxl.json")
    assert [style.name for style in styles] == [style.name for style in read_styles()]
    assert styles[6] == PromptStyle("pointilism", "pointillism of {label} .", "pointillism")
    (tmp_path / "sdxl.json").write_text(json.dumps(entries[:-1]))
    with pytest.raises(UserError, match=r"sdxl\.json' lacks tilt-shift of Syn-IS"):
        read_styles(tmp_path / "sdxl.json")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- {name: a, prompt: 'a {label}', weight: 2}", "entry 0 weight: Unexpected keyword"),
        ("- {name: a, prompt: 'no place'}", "write {label} once"),
        ("- {name: a}", "entry 0 prompt: Field required"),
        ("- {name: a, prompt: '{label}'}\n- {name: a, prompt: 'a {label}'}", "two styles named"),
        ("just words", "write a list"),
        ("- [", "cannot be read"),
    ],
)
def test_a_wrong_style_file_is_named(tmp_path, text, said):
    (tmp_path / "styles.yaml").write_text(text)
    with pytest.raises(UserError, match=r"styles\.yaml") as error:
        read_styles(tmp_path / "styles.yaml")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_prompts_are_numbered_label_by_label():
    prompts = Prompts(
        [PromptStyle("x", "x {label}"), PromptStyle("y", "{label} y")], ["cat", "dog", "elk"]
    )
    assert [prompts.text(i) for i in range(len(prompts))] == [
        "x cat", "cat y", "x dog", "dog y", "x elk", "elk y",
    ]  # fmt: skip
    assert len({prompts.file(i) for i in range(6)}) == 6


def test_degrees_of_prompts_are_distances_of_texts_to_images():
    generator = torch.Generator().manual_seed(0)
    W = torch.linalg.qr(torch.randn(8, 8, generator=generator))[0]
    images = F.normalize(torch.randn(40, 8, generator=generator), dim=1)
    texts = {f"x {i}": torch.randn(8, generator=generator) for i in range(30)}
    prompts = Prompts([PromptStyle("x", "x {label}")], [str(i) for i in range(30)])
    meter = ShiftMeter(Decomposition("laid", W, 4, {}), images, k=3)
    encode = lambda words: F.normalize(torch.stack([texts[w] for w in words]), dim=1)  # noqa: E731
    found = measure_prompts(prompts, [4, 7, 29], encode, meter)
    for half, degrees in ((slice(0, 4), found.semantic), (slice(4, 8), found.covariate)):
        bank = (images @ W)[:, half].double().numpy()
        for number, degree in zip((4, 7, 29), degrees.tolist(), strict=True):
            g = (texts[f"x {number}"] @ W)[half].double().numpy()
            cosine = bank @ g / np.linalg.norm(bank, axis=1) / np.linalg.norm(g)
            assert degree == pytest.approx(np.sort(1 - cosine)[2], abs=1e-6)


def test_cells_are_drawn_apart_from_each_other():
    rng = np.random.default_rng(1)
    semantic, covariate = rng.integers(0, 3, 200), rng.integers(0, 2, 200)
    chosen = choose(semantic, covariate, 5, seed=0)
    cells = pd.DataFrame({"s": semantic, "c": covariate}).iloc[chosen]
    assert (cells.value_counts() == 5).all()
    assert len(cells.value_counts()) == 6
    assert len(set(chosen.tolist())) == len(chosen) == 30
    assert not np.array_equal(chosen, choose(semantic, covariate, 5, seed=1))
    # What happens in the other cells does not matter to cell (0, 0).
    other = semantic.copy()
    other[semantic == 2] = 1
    first = chosen[(semantic[chosen] == 0) & (covariate[chosen] == 0)]
    again = choose(other, covariate, 5, seed=0)
    assert set(first) == set(again[(other[again] == 0) & (covariate[again] == 0)])


def test_short_cells_are_named_with_what_they_have():
    semantic, covariate = np.array([0, 0, 0, 1]), np.array([0, 0, 0, 1])
    assert short_cells(semantic, covariate, (2, 2), 2) == [
        "cov_0_sem_1 (0)", "cov_1_sem_0 (0)", "cov_1_sem_1 (1)",
    ]  # fmt: skip
    assert len(choose(semantic, covariate, 2, 0)) == 3


def test_image_seeds_differ_and_stay():
    seeds = {image_seed(0, i) for i in range(1000)} | {image_seed(1, i) for i in range(1000)}
    assert len(seeds) == 2000
    assert image_seed(0, 5) == image_seed(0, 5) < 2**32


@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_only_missing_images_are_made_again(tmp_path, suffix):
    files = [tmp_path / "images" / f"{i}.{suffix}" for i in range(5)]
    asked = []

    def make(rows):
        asked.extend(rows)
        return [None if r == 4 else Image.new("RGB", (16, 16), (40 * r, 0, 0)) for r in rows]

    assert make_images(files, make, 2) == [4]
    assert asked == [0, 1, 2, 3, 4]
    assert sorted(p.name for p in (tmp_path / "images").iterdir()) == [f.name for f in files[:4]]
    files[1].unlink()
    files[2].unlink()
    asked.clear()
    make_images(files, make, 2)
    assert asked == [1, 2, 4]


def test_a_plan_is_made_once_and_belongs_to_its_settings(tmp_path):
    table = pd.DataFrame({"label": ["007", "null", ""], "seed": [1, 2, 3]})
    made = []

    def make():
        made.append(1)
        return table

    first = keep_plan(tmp_path / "x", {"seed": 0, "k": 10}, make)
    second = keep_plan(tmp_path / "x", {"seed": 0, "k": 10}, make)
    assert len(made) == 1
    pd.testing.assert_frame_equal(first, second)
    assert second["label"].tolist() == ["007", "null", ""]
    with pytest.raises(UserError, match=r"other k, seed: choose another task\.out"):
        keep_plan(tmp_path / "x", {"seed": 1, "k": 3}, make)


def test_a_ledger_forgets_an_unfinished_line_only(tmp_path):
    path = tmp_path / "answers.jsonl"
    Ledger(path, {"llm": "a"}).add([("x", {"answer": "yes\u2028"}), ("y", {"answer": "no"})])
    path.write_text(path.read_text()[:-5])
    ledger = Ledger(path, {"llm": "a"})
    assert ledger.answers == {"x": {"answer": "yes\u2028"}}
    ledger.add([("z", {"answer": "no"})])
    assert set(Ledger(path, {"llm": "a"}).answers) == {"x", "z"}
    with pytest.raises(UserError, match="another model"):
        Ledger(path, {"llm": "b"})


def test_a_ledger_begins_after_a_run_that_was_killed_in_its_first_line(tmp_path):
    for begun in ("", '{"made_wi'):
        path = tmp_path / f"{len(begun)}.jsonl"
        path.write_text(begun)
        Ledger(path, {"llm": "a"}).add([("x", {"answer": "yes"})])
        assert Ledger(path, {"llm": "a"}).answers == {"x": {"answer": "yes"}}


def run_apart(work):
    """Runs ``work`` in a process of its own; returns its id."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(1)
    return child


def test_opening_a_ledger_writes_nothing(tmp_path):
    """A run that is killed, or finds the disk full, at its start takes no answer along."""
    path = tmp_path / "answers.jsonl"
    Ledger(path, {"llm": "a"}).add((str(i), {"answer": "yes"}) for i in range(100))
    whole = path.read_bytes()

    def start_on_a_full_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        Ledger(path, {"llm": "a"})
        os._exit(0)

    assert os.waitpid(run_apart(start_on_a_full_disk), 0)[1] == 0
    assert path.read_bytes() == whole


def test_a_ledger_outlives_a_kill(tmp_path):
    """kill -9 between two answers and in the middle of many: every answer reported is there."""
    path = tmp_path / "answers.jsonl"
    reported: list[str] = []
    for start in range(3):
        read, write = os.pipe()

        def answer(start=start, write=write):
            def slowly():
                for i in itertools.count():
                    yield f"{start}-{i}", {"answer": "yes " * 100}
                    os.write(write, f"{start}-{i}\n".encode())  # asked for the next: it is kept

            Ledger(path, {"llm": "a"}).add(slowly())

        child = run_apart(answer)
        os.close(write)
        with open(read) as lines:
            reported += [next(lines).strip() for _ in range(20)]
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            reported += lines.read().split()
        assert set(reported) <= set(Ledger(path, {"llm": "a"}).answers)
    assert len(reported) >= 60
    assert path.read_text().count("made_with") == 1


def test_all_missing_models_are_listed_at_once(tmp_path):
    parts = {
        "_class_name": "Any",
        "unet": ["diffusers", "UNet2DConditionModel"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "safety_checker": [None, None],
    }
    (tmp_path / "unet").mkdir()
    (tmp_path / "model_index.json").write_text(json.dumps(parts))
    options = {"task.a": str(tmp_path), "task.b": None, "task.c": str(tmp_path / "unet")}
    with pytest.raises(UserError) as error:
        check_model(options)
    missing = ("task.a lacks", "tokenizer", "task.b is not set", "task.c lacks", "config.json")
    assert all(word in str(error.value) for word in missing)
    (tmp_path / "tokenizer").mkdir()
    check_model({"task.a": str(tmp_path)})


def test_the_licence_comes_from_the_model_card(tmp_path):
    assert "not stated" in licence(tmp_path)
    (tmp_path / "README.md").write_text("---\ntags: [x]\nlicense: openrail++\n---\nlicense: no\n")
    assert licence(tmp_path) == "openrail++"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Yes, it does.", True),
        ("**NO**", False),
        ("<think>yes or no?</think>\nno", False),
        ("Nothing is known; yesterday", None),
        ("", None),
    ],
)
def test_answers_are_read(text, answer):
    assert parse_answer(text) is answer


def test_keywords_are_words():
    synsets, of_1k = imagenet21k_synsets()
    assert (len(synsets), len(of_1k)) == (21841, 1000)
    found = select_by_keyword(synsets, ["pot", "urn"])
    named = {s.wnid: s for s in synsets}
    words = {"pot": {"pot", "pots", "potes"}, "urn": {"urn", "urns", "urnes"}}
    for wnid, synset in named.items():
        tokens = set(re.split(r"[^a-z0-9_]+", f"{synset.lemmas} {synset.definition}".lower()))
        assert (found.get(wnid) is not None) == any(tokens & forms for forms in words.values())
    assert named["n07710616"].label == "potato"
    assert "n07710616" not in found
