"""Policies for other runtimes."""
