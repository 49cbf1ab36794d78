"""Fine-tuning of vision-language models."""
