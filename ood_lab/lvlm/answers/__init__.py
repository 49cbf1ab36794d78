"""Answers of chat models: requests, files, and what a reply says."""
