"""Settings of the process that change speed and nothing else, one module for each, with its reason and its figure.

The environment variable `MUSTER_TUNING_OFF` turns them off by name, separated by commas: `collector`,
`switch_interval`, `write_back`. Everything works without them.
"""
