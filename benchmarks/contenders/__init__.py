"""Contenders, one process each: this package, and its peers in a separate environment."""
