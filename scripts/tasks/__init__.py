"""One file per task: how examples become batches, labels and metrics; the registry joins data sets with tasks."""
