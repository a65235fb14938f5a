"""Command-line scripts, which parse arguments and call the package."""
