"""The report: one HTML page that opens offline, and its plots as PNG.

data      the tables' analytics as few plain rows      findings  what of it is wrong, and where to look
plots     matplotlib figures                           page      HTML out of all of it
words     numbers, durations and names for people

`data` needs Spark; the rest is pure.
"""
