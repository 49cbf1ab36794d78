"""Answers of vision-language models: requests, files, and what a reply says."""
