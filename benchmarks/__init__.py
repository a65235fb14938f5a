"""Side-by-side measurements; `scripts/benchmark.py` runs them and writes `benchmarks/results/`."""
