"""Making shifted data: prompts of known shift, generated images, related classes, new materials.

Diffusion and language models are run through ``diffusers`` and ``transformers`` (the extra
``synthesis``), which are imported where they are needed; plans and selections by keyword do
without.
"""

from ood_lab.common.installed_packages import package_versions as package_versions
from ood_lab.synthesis.dataset_files import Ledger as Ledger
from ood_lab.synthesis.dataset_files import keep_plan as keep_plan
from ood_lab.synthesis.dataset_files import keep_settings as keep_settings
from ood_lab.synthesis.dataset_files import write_datasheet as write_datasheet
from ood_lab.synthesis.image_batches import batches as batches
from ood_lab.synthesis.image_batches import make_images as make_images
from ood_lab.synthesis.image_batches import make_planned as make_planned
from ood_lab.synthesis.imagenet21k_classes import Synset as Synset
from ood_lab.synthesis.imagenet21k_classes import imagenet21k_synsets as imagenet21k_synsets
from ood_lab.synthesis.imagenet21k_classes import select_by_keyword as select_by_keyword
from ood_lab.synthesis.material_transfer import MaterialTransfer as MaterialTransfer
from ood_lab.synthesis.material_transfer import check_transfer as check_transfer
from ood_lab.synthesis.material_transfer import fit_mask as fit_mask
from ood_lab.synthesis.material_transfer import fit_size as fit_size
from ood_lab.synthesis.material_transfer import grey_foreground as grey_foreground
from ood_lab.synthesis.pretrained_models import LanguageModel as LanguageModel
from ood_lab.synthesis.pretrained_models import MainObject as MainObject
from ood_lab.synthesis.pretrained_models import check_model as check_model
from ood_lab.synthesis.pretrained_models import check_package as check_package
from ood_lab.synthesis.pretrained_models import chosen_dtype as chosen_dtype
from ood_lab.synthesis.pretrained_models import licence as licence
from ood_lab.synthesis.pretrained_models import parse_answer as parse_answer
from ood_lab.synthesis.prompt_selection import choose as choose
from ood_lab.synthesis.prompt_selection import image_seed as image_seed
from ood_lab.synthesis.prompt_selection import measure_prompts as measure_prompts
from ood_lab.synthesis.prompt_selection import short_cells as short_cells
from ood_lab.synthesis.prompts import Prompts as Prompts
from ood_lab.synthesis.prompts import PromptStyle as PromptStyle
from ood_lab.synthesis.prompts import read_styles as read_styles
from ood_lab.synthesis.text_to_image import TextToImage as TextToImage
from ood_lab.synthesis.text_to_image import check_pipeline as check_pipeline
