"""The `muster` command: what a person does by hand. Embedded mode (`muster local ...`) and the demo.

May import the operator (embedded mode runs its planner and steps) and the coordinator's pod API client and settings;
nothing imports this package.
"""
