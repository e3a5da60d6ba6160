"""The certificates of a cluster: a CA of its own, and leaves for operator, pods and readers (ADR 30).

`issuing` makes them, `rotation` decides what is due; both are pure but for randomness. `folder` keeps them in files.
"""
