"""Large vision-language models: what is annotated in images, questions about it, answers."""
