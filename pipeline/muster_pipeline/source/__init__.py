"""Where segments come from, and Spark's way to them.

files    find the segments of an offsets topic, cut them into splits
places   segments that a pod or an object store has
follow   how far logs that grow were read
lineage  whether a log is still the one that was read
options  the options of the data source
spark    ``spark.read.format("muster_offsets")``
session  a Spark session that is set up for it

Imports ``decode``; only ``spark`` and ``session`` import Spark.
"""
