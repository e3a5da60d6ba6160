"""An offsets or transaction topic with another number of partitions, written from the logs of the old one.

job           `reshard`, `plan`: the way in; state on disk, so that a killed run goes on where it was
route         which records are carried over, and to which partition
writer        segments with dense offsets
verify        the same keys and values per group or transactional id, each in its partition
transactions  what is refused of the transaction topic in logs that are not in use

Imports `decode` and `source.files`; needs no Spark.
"""
