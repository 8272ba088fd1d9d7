"""Infer the task and recipe of own data from its columns."""
