"""`muster backup` and `muster restore`: begin with `create.py`, then `cut.py` (docs/backup.md)."""
