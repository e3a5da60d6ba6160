"""Tables of the records of a log, stored as Parquet.

schemas     the tables and their columns
transforms  DataFrame -> DataFrame: transactions, current offsets, memberships, rebalances
store       a directory of Parquet files with a manifest; only files named in the manifest count
run         one run: read new records, append, derive, publish
current     the offsets straight from logs
local, read small answers without Spark
iceberg     the same tables in an Iceberg catalog

Imports `source` and `decode`.
"""
