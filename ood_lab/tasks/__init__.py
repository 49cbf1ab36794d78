"""What a job does: one file per ``conf/task/*.yaml``, each a :class:`~ood_lab.run.task.Task`."""
