"""Reports made from an output directory alone: summary table and plots."""
