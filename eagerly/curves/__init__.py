"""What runs have reached, compared: tables of evaluations, statistics over seeds, figures."""
