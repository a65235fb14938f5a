"""Contenders: the programs that the benchmarks compare, each in a separate process.

The peers (plain PyTorch, Stable-Baselines3 and SBX) run in a separate virtual environment.
"""
