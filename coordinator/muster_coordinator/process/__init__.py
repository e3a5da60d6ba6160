"""The process of a pod: `main` is the entry point, `compose` builds the objects and wires them.

May import everything else of the coordinator; nothing imports it.
"""
