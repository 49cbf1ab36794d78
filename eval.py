"""Score detectors on a backbone that has weights.

python eval.py ckpt=<run folder or file>          # the run's own data and model, from its bank
python eval.py ckpt=<run> detector=[knn,vim]
python eval.py data=folder data.id.train=DIR data.id.test=DIR data.ood.mine=DIR
               model=timm model.name=resnet50
"""

import hydra
from omegaconf import DictConfig

from ood_lab import run


@hydra.main(version_base="1.3", config_path="conf", config_name="eval")
def main(cfg: DictConfig) -> None:
    """One job: the task builds what it needs (data, backbone, detectors, ...) and returns rows."""
    with run.job(cfg) as job:
        if job.finished:
            return
        job.run_task()
        job.close()


if __name__ == "__main__":
    run.launch(main, "eval")
