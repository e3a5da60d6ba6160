"""`muster pipeline` and `muster report`: tables and reports from partition logs. Needs the extra `pipeline`."""
