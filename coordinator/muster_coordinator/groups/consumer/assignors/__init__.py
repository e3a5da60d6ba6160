"""The assignors of the server: `assign` for a name, each of them a pure function (docs/assignors.md).

`spec`: what they are given and give. `range_assignor` and `uniform`; the latter has a way for members that subscribe
alike (`homogeneous`) and one for others (`heterogeneous`). `java_order`: in which order Java walks a hash table.
"""
