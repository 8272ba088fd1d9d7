"""A page of Gradio on which a person tries a model, and the folder of a Gradio Space with that page."""
