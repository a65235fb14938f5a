"""What is measured, one process each: this package, and the peers in an environment of their own."""
