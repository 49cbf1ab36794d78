"""Which objects are in which images: one table from every format.

A source (``CocoAnnotations``, ``LvisAnnotations``, ``NuScenesAnnotations``,
``CityscapesAnnotations``, the builtin scenes) is light to build; its ``read()`` checks
everything that the table needs, the images' files included, and returns :class:`Annotations`.
"""

from ood_lab.lvlm.annotations.annotation_table import Annotations

__all__ = ["Annotations"]
