"""kopf as a watcher, and nothing else: handlers hand events over and write nothing.

No finalizers, annotations, indexes, peering or posted events of kopf's own ever appear on an object.
"""
