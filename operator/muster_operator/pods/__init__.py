"""Sessions with pods: one watch stream per pod, its failure detector, and calls that run in the background."""
