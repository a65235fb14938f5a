"""Side-by-side measurements: `make bench` runs them and writes `benchmarks/results/`."""
