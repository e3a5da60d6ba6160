"""Tables of what a log says, kept in Parquet.

schemas     the tables and their columns
transforms  DataFrame -> DataFrame: transactions, current offsets, memberships, rebalances
store       a directory of Parquet files with a manifest; what is in the manifest is all there is
run         one run: read what is new, append, derive, publish
current     the offsets straight from logs
local, read small answers without Spark
iceberg     the same tables in an Iceberg catalog

Imports ``source`` and ``decode``.
"""
