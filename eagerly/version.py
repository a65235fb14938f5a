"""The version of the package, also read by `setup.cfg`."""

__version__ = "0.2.0"
