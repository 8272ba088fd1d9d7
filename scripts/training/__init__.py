"""The training loop and its parts: accelerator, sampler, schedule, checkpoints, record, plots."""
