"""Benchmarks: each prints what it measured beside a peer measured in the same run."""
