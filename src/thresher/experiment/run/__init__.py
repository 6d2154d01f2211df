"""The folder of a run: the workflow whose stages fill it, its models, its repair and its verification."""
