"""Benchmarks: what a request costs above its bare transport. `python -m bench --help`."""
