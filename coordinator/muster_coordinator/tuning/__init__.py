"""Settings of the process and its threads that change speed and nothing else, each with its reason and figure."""
