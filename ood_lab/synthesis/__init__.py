"""Making shifted data: prompts of known shift, generated images, related classes, new materials.

Diffusion and language models are run through ``diffusers`` and ``transformers`` (the extra
``synthesis``), which are imported where they are needed; plans and selections by keyword do
without.
"""

from ood_lab.common.installed_packages import package_versions
from ood_lab.synthesis.answer_ledger import Ledger
from ood_lab.synthesis.datasheet import datasheet
from ood_lab.synthesis.foreground_masks import Segmenter
from ood_lab.synthesis.image_batches import check_suffix, keep_made, make_images, unmade
from ood_lab.synthesis.imagenet21k_classes import (
    Synset,
    imagenet21k_synsets,
    select_by_keyword,
    wnids_of,
)
from ood_lab.synthesis.language_model import LanguageModel, parse_answer
from ood_lab.synthesis.material_transfer import (
    MaterialTransfer,
    check_transfer,
    fit_mask,
    fit_size,
    grey_foreground,
)
from ood_lab.synthesis.model_loading import (
    check_model,
    check_package,
    chosen_dtype,
    licence,
    missing_files,
)
from ood_lab.synthesis.object_coverage import MainObject
from ood_lab.synthesis.plan_file import keep_plan, keep_settings
from ood_lab.synthesis.prompt_selection import (
    choose,
    image_seed,
    measure_prompts,
    plan_table,
    short_cells,
)
from ood_lab.synthesis.prompts import Prompts, Style, read_styles
from ood_lab.synthesis.step_progress import progress_bar
from ood_lab.synthesis.text_to_image import TextToImage, check_pipeline

__all__ = [
    "LanguageModel",
    "Ledger",
    "MainObject",
    "MaterialTransfer",
    "Prompts",
    "Segmenter",
    "Style",
    "Synset",
    "TextToImage",
    "check_model",
    "check_package",
    "check_pipeline",
    "check_suffix",
    "check_transfer",
    "choose",
    "chosen_dtype",
    "datasheet",
    "fit_mask",
    "fit_size",
    "grey_foreground",
    "image_seed",
    "imagenet21k_synsets",
    "keep_made",
    "keep_plan",
    "keep_settings",
    "licence",
    "make_images",
    "measure_prompts",
    "missing_files",
    "package_versions",
    "parse_answer",
    "plan_table",
    "progress_bar",
    "read_styles",
    "select_by_keyword",
    "short_cells",
    "unmade",
    "wnids_of",
]
