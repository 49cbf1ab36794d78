"""Train a backbone, measure how far the OOD sets are, then score every detector.

python train.py                                   # builtin data, CPU, one to three minutes
python train.py data=folder data.id.train=DIR data.ood.mine=DIR
python train.py experiment=NAME trainer.devices=4
"""

import hydra
from omegaconf import DictConfig

from ood_lab import run


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
def main(cfg: DictConfig) -> None:
    """One job: data, model, trainer, fit, then the task (by default distances and detectors)."""
    with run.job(cfg) as job:
        if job.finished:
            return
        if job.trains:
            model = run.classifier(job)
            job.task.check(job)
            with job.stages("train"), run.training(job, model) as begins:
                if begins:
                    job.trainer.fit(model, datamodule=job.data, ckpt_path=job.last_checkpoint)
            run.finish_training(job, model)
        job.run_task()
        job.close()


if __name__ == "__main__":
    run.launch(main, "train")
