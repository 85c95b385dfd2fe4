"""Measurements that a reader can repeat; each module runs as `python -m scalemix.benchmarks.NAME`."""
