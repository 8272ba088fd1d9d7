"""What training commands share: recipes, data, the loop, the run folder, pictures."""
