"""Workers that run groups of environments, in this process or in others."""
