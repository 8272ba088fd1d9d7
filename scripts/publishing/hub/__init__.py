"""Build a model's repository and upload it in one commit."""
