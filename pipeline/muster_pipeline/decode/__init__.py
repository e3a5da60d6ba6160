"""Decodes segment bytes to Arrow: records, and rows for bytes that could not be read.

schema      columns, kinds of rows, codes of problems
decoder     `Decoder`, `decode_segment`: the way in
latest      `last_only`: without the commits that later ones replaced
scan        where the batches lie      structure   where the records of all batches lie
fast_rows   rows that numpy reads      slow_rows   rows that the coordinator's own decoder reads
columns     numbers and strings at many places of a buffer; compression, bytes_source, errors

Imports from the coordinator `records` only, and nothing of Spark.
"""
