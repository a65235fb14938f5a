"""Comparison of runs: tables of evaluations, statistics over seeds, and figures."""
