"""Write the model card from the record of a run."""
