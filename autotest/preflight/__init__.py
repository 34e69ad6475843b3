"""Preflight: what a plan needs of the servers, looked at before the first guest boots."""
