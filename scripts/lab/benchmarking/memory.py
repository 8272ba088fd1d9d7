"""Measure the most memory that a step holds beyond what was there before it."""

import os
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile


def peak_bytes(step: Callable[[], object], device: torch.device) -> int:
    """Return the greatest sum of what a step allocates and has not freed yet, temporaries of operators included."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        step()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it would write between the lines of a progress bar
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()
    results = profiled.profiler.kineto_results if profiled.profiler else None
    events = [event for event in results.events() if event.name() == "[memory]"] if results else []
    return highest([event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())])


def highest(changes: list[int]) -> int:
    """Return the greatest sum of changes from the first one on."""
    now = most = 0
    for change in changes:
        now += change
        most = max(most, now)
    return most
