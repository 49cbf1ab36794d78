"""Command lines as people type them: valid ones, each with one or two mistakes."""

import random
import string

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from ood_lab.run.commandline.line_checks import all_keys
from ood_lab.run.commandline.resolvers import register_resolvers
from ood_lab.scripts import CONF

#: Lines that can be understood; whether their files exist is another matter.
VALID = [
    ("train", ["seed=1"]),
    ("train", ["model=timm", "model.name=resnet18", "model.kwargs.img_size=64"]),
    ("train", ["data=folder", "data.id.train=photos", "data.ood.mine=others"]),
    ("train", ["data=folder", "data.id.train=my photos/é", "data.shift_order=[near,far]"]),
    ("train", ["prompt=coop", "clip=tiny", "data.shots=16"]),
    ("train", ["model=nts", "preset=official", "trainer.max_epochs=3"]),
    ("train", ["trainer=ddp_cpu", "trainer.devices=2", "trainer.precision=bf16-mixed"]),
    ("train", ["callbacks=ema", "callbacks.ema.decay=0.9", "logger=csv"]),
    ("train", ["model.classifier.optimizer.lr=1e-3", "data.batch_size=32", "~model.augment.0"]),
    ("train", ["-m", "model=resnet10s,nts", "seed=0,1", "name=sweep"]),
    ("train", ["model=laid", "clip=tiny", "model.laid.margin=0.3"]),
    ("eval", ["ckpt=outputs/a/0123456789/seed=0", "detector=[knn,vim]", "detector.knn.k=20"]),
    ("eval", ["detector=[msp]", "detector_preset=paper", "metrics.fpr95_positive=id"]),
    ("eval", ["-m", "detector=msp,knn", "report_by=covariate,semantic", "data.per_cell=3"]),
    ("eval", ["task=compare", "task.runs=[a/seed=0,b/seed=0]"]),
    ("eval", ["task=shift_scores", "task.laid=outputs/laid/seed=0", "clip=tiny"]),
    ("eval", ["tuning=val_ood", "tuning.sets=[container]", "metrics.n_bootstrap=50"]),
    ("eval", ["task=predict", "ckpt=RUN", "task.images=DIR", "task.alpha=0.05"]),
]
ODD = [*",='\"[]{}()#\\$:;&*?%~+@!|<> \t\n", "${", "é", "猫", "🏺", "\x1b"]
VALUES = [
    *("abc", "", "null", "true", "no", "[]", "[1,2]", "{a: 1}", "-1", "0", "1.5", "1e400"),
    *("nan", "-inf", "9" * 25, "1e-400", "${seed}", "${nokey}", "${oc.env:NO_SUCH}", "???"),
    *("a,b", "'", "../..", "/", "~", "range(0,3)", "choice(1,2)", "glob(*)", "x" * 300, "0x1F"),
]
#: Keys that would make the real runs leave their folder, or work without end.
SPARED = ("paths", "hydra", "trainer.max_time")


def mutations(seed: int, count: int):
    """``count`` pairs of a script and the arguments of a mutated line."""
    rng = random.Random(seed)
    keys = _keys()
    return [_mutated(rng, keys) for _ in range(count)]


def _keys() -> list[str]:
    register_resolvers()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        cfg: DictConfig = compose("train")
    return [key for key in all_keys(cfg) if not key.startswith(SPARED)]


def _mutated(rng: random.Random, keys: list[str]) -> tuple[str, list[str]]:
    script, line = rng.choice(VALID)
    arguments = list(line)
    for _ in range(rng.choice((1, 1, 2))):
        mutate = rng.choice(KINDS)
        position = rng.randrange(len(arguments))
        arguments[position] = mutate(rng, arguments[position], keys)
    return script, arguments


def _mistyped(rng: random.Random, text: str, keys: list[str]) -> str:
    """A letter left out, doubled, swapped or replaced."""
    if not text:
        return rng.choice(string.ascii_letters)
    at = rng.randrange(len(text))
    before, letter, after = text[:at], text[at], text[at + 1 :]
    swapped = after[:1] + letter + after[1:]
    other = rng.choice(string.ascii_lowercase + "._-=")
    return before + rng.choice((after, letter + letter + after, swapped, other + after))


def _odd(rng: random.Random, text: str, keys: list[str]) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(ODD) + text[at:]


def _other_value(rng: random.Random, text: str, keys: list[str]) -> str:
    return f"{text.partition('=')[0]}={rng.choice(VALUES)}"


def _other_key(rng: random.Random, text: str, keys: list[str]) -> str:
    return f"{rng.choice(keys)}={rng.choice((*VALUES, text.partition('=')[2]))}"


def _no_value(rng: random.Random, text: str, keys: list[str]) -> str:
    return text.partition("=")[0] + rng.choice(("", "="))


def _prefixed(rng: random.Random, text: str, keys: list[str]) -> str:
    return rng.choice(("+", "++", "~", "-", "--", "=", "@", ".")) + text


def _wrong_group(rng: random.Random, text: str, keys: list[str]) -> str:
    groups = sorted(path for path in CONF.iterdir() if path.is_dir() and path.name not in SPARED)
    files = sorted(rng.choice(groups).rglob("*.yaml"))
    return f"{rng.choice(groups).name}={rng.choice(files).stem if files else ''}"


def _reversed(rng: random.Random, text: str, keys: list[str]) -> str:
    key, _, value = text.partition("=")
    return f"{value}={key}"


def _left_out(rng: random.Random, text: str, keys: list[str]) -> str:
    return f"~{rng.choice(keys)}"


KINDS = (
    *(_mistyped, _mistyped, _odd, _odd, _other_value, _other_value, _other_key, _other_key),
    *(_no_value, _prefixed, _wrong_group, _reversed, _left_out),
)
