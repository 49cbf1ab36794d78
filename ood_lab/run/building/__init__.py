"""The objects of a job, and the bases of its tasks."""
