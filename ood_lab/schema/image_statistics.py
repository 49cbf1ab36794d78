"""Names of the statistics of images, and what an image with less or more of one is called."""

from __future__ import annotations

#: Of the pixels, in the order of the columns of :func:`ood_lab.shift.image_statistics`.
PIXELS = {
    "brightness": ("darker", "brighter"),
    "contrast": ("lower in contrast", "higher in contrast"),
    "saturation": ("paler", "more saturated"),
    "colourfulness": ("less colourful", "more colourful"),
    "warmth": ("bluer", "redder"),
    "sharpness": ("more blurred", "sharper"),
    "noise": ("smoother", "noisier"),
    "high frequencies": ("poorer in fine detail", "richer in fine detail"),
    "blockiness": ("less blocky", "blockier"),
    "clipped white": ("less overexposed", "more overexposed"),
    "clipped black": ("less underexposed", "more underexposed"),
}
#: Of the files.
FILES = {
    "size": ("smaller", "larger"),
    "aspect ratio": ("taller", "wider"),
    "JPEG quality": ("more compressed", "less compressed"),
    "grey": ("less often grey", "more often grey"),
}
#: Begins the name of the statistic that is 1 for files of a format.
FORMAT = "format "
#: Logarithms to base 10, which a person reads as the number itself.
LOGARITHMS = ("sharpness", "noise", "high frequencies")


def words_of(statistic: str) -> tuple[str, str]:
    """What images with less, and with more, of a statistic are called."""
    if statistic.startswith(FORMAT):
        name = statistic.removeprefix(FORMAT)
        return f"less often {name}", f"more often {name}"
    return (PIXELS | FILES)[statistic]


def value_text(value: float, statistic: str) -> str:
    """A value of a statistic for a person: two digits, not as a logarithm."""
    return f"{10**value if statistic in LOGARITHMS else value:.2g}"
