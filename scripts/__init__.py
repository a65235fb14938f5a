"""The command line: thin scripts that parse arguments and wire things together."""
