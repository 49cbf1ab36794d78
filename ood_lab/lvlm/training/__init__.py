"""Fine-tuning of vision-language models, and the tiny one that comes with the package."""
