"""The store of backups that a cluster declares, as the command line and the settings of pods name it."""

from __future__ import annotations

from muster_operator.api.models import BackupStore, CoordinatorCluster

BACKUPS_DIRECTORY = "/backups"
"""The directory in which the volume of a store is mounted."""


def store_address(store: BackupStore, namespace: str, name: str) -> str:
    """The value of `muster backup --store`. `namespace`, `name`: of the cluster."""
    if store.s3 is None:
        return f"{BACKUPS_DIRECTORY}/{store.directory or name}"
    return f"s3://{store.s3.bucket}/{store.s3.prefix or f'{namespace}/{name}'}"


def site_settings(cluster: CoordinatorCluster) -> dict[str, str]:
    """The setting that names the site of the cluster's pods; none if it is of no site."""
    site, meta = cluster.spec.site, cluster.metadata
    if site is None:
        return {}
    return {"muster.site": f"{site.name}@{store_address(site.store, meta.namespace, meta.name)}"}
