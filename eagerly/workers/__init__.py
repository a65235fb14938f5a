"""Workers: groups of environments that act and are stepped, here or elsewhere."""
