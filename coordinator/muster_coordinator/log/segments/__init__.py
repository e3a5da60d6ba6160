"""The log of one partition: its segment files, how they are read, written and synced, and how a start recovers them."""
