"""Background work on logs that are open: checkpoints, cleaning, archiving. One chore per module, one run at a time."""
