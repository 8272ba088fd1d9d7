"""A web page that lets a person try a model: its server, its answers, its attention, and a folder for a Space."""
