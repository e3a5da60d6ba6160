"""The planner: a pure function from an observation to a tuple of actions, without clock, I/O or randomness.

`planner.plan` is the entry. An observation in which everything is as declared gives an empty plan. Every action can be
repeated without harm, and a plan can stop after any of its actions: the next plan contains what is missing.
"""
