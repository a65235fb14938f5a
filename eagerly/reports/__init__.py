"""HTML reports of runs: one self-contained page without scripts."""
