"""What a job does: one file per ``conf/task/*.yaml``, each a ``Task`` of ``run.workspace``."""
