"""Pure decisions: an observation in, a tuple of actions out. No clock, no I/O, no randomness; sees only the api models.

`planner.plan` is the entry. A converged observation gives an empty plan. Every action is harmless when it is repeated,
and a plan may be cut short after any of them: what is missing is planned again from what is then observed.
"""
