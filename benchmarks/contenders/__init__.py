"""What is measured, one process each: this package, and its peers in their own environment."""
