"""Frames and log files that nobody should send or find: no crash, no hang, no growth, only the documented errors."""
