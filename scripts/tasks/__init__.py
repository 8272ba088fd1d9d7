"""One file per task: how its examples become batches, its loss's labels, its metrics; the registry joins data with tasks."""
