"""Benchmarks of speed (`make bench`) and learning (`make reproduce`)."""
