"""kopf, used only to watch: its handlers pass events on and write nothing.

kopf adds no finalizers, annotations, indexes, peering objects or events of its own.
"""
