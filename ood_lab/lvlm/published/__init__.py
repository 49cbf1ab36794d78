"""Questions of published benchmarks, from their own files."""

from ood_lab.lvlm.published.hallusion import HallusionFiles
from ood_lab.lvlm.published.mme import MmeFiles
from ood_lab.lvlm.published.pope import PopeFiles
from ood_lab.lvlm.published.source import QuestionSource

__all__ = ["HallusionFiles", "MmeFiles", "PopeFiles", "QuestionSource"]
