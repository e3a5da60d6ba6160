"""The size of a slice: large answers are found, made and written in such, so that none of it takes long."""

SLICE_ENTRIES = 500
"""Offsets, groups or members. So many take about half a millisecond."""
