"""How many neighbours a number of images can bear."""

from __future__ import annotations

#: Share of a class that the neighbourhood is.
SHARE = 10
#: Classes that images without labels are taken to be of.
UNKNOWN_CLASSES = 10


def neighbour_count(images: int, classes: int, largest: int) -> int:
    r"""K from the number of images of a class: a tenth, rounded up.

    .. math:: k = \min\Big(k_{\max}, \Big\lceil \frac{n}{10 C} \Big\rceil\Big)

    The k-th neighbour has to be of the class of the image: where k exceeds its images, the
    distance is that to the next class, which an OOD image between the classes is nearer to. A tenth
    keeps k inside the class also where classes are of unequal size, and smooths over single odd
    images from 11 images of a class. From 10 k_max images of a class on it is the authors' k.

    Args:
        images: n, of the bank; groups where images belong together.
        classes: C that the bank holds; 0 = unknown: 10.
        largest: k_max, the authors' k.

    Returns:
        k, at least 1; at most n where n > 0.
    """
    per_neighbour = SHARE * (classes or UNKNOWN_CLASSES)
    return max(1, min(largest, -(-images // per_neighbour)))


def neighbours_in_words(k: int, images: int, classes: int, unit: str = "image") -> str:
    """The k that :func:`neighbour_count` gives, and for how many images, or groups of them."""
    count = f"{images / classes:,.0f} {unit}s per class" if classes else f"{images:,} {unit}s"
    return f"k = {k}, for {count}"
