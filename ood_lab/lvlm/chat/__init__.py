"""Vision-language models: one contract, whatever answers."""
