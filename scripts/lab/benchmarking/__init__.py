"""Workloads and the contenders that run them, compared and then timed in turns, and the record of what was measured."""
