"""From Metrics to findings and a verdict; one rule, one file, found by its presence in this folder."""
