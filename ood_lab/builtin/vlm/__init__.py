"""How the shipped vision-language model was made: questions about builtin scenes."""
