"""Files of a pod: the journal, the logs of its partitions, their checkpoints.

`writer` writes journal and logs; `journal` and `segments` are their files; `cleaning` compacts segments. Everything
goes through `disk`. Calls block; the pod says in which thread they run.
"""
