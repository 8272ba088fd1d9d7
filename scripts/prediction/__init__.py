"""Use a trained model: inputs from the shell, files, folders and tables, its predictions, and how good they are."""
