"""Helpers of every folder: durable files, tables of metrics, spelling suggestions, the environment of a run."""
