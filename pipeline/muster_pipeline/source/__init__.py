"""Finds and opens segments, and serves them to Spark.

files        finds the segments of an offsets topic and cuts them into splits
locations    opens a segment: a file, a pod's, or one in an object store
pod_logs     lists the logs that pods serve
http_ranges  reads a pod's segment by HTTP ranges
follow       how far logs that grow were read
lineage      whether a log is still the one that was read
options      the options of the data source
spark        `spark.read.format("muster_offsets")`
session      a Spark session that is set up for it

Imports `decode`; only `spark` and `session` import Spark.
"""
