"""The `muster` command: embedded mode, re-sharding, the pipeline and the demo.

It may import the operator, because embedded mode runs it, and the coordinator. No other package imports this one.
"""
