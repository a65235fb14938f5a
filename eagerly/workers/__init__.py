"""Workers that act in groups of environments, in this process or elsewhere."""
