"""The alerts of Muster, with what a person on call does about each: one table for rules, chart and runbook.

`hack/render_alerts.py` renders config/monitoring/alerts.yaml, charts/muster/files/alerts.yaml and docs/runbook.md.
"""

from __future__ import annotations

from dataclasses import dataclass

CERTIFICATE_DAYS = "CERTIFICATE_DAYS"
"""The placeholder of the chart's value `alerts.certificateDays`; elsewhere 6."""

POD = "{{ $labels.namespace }}/{{ $labels.pod }}"
CLUSTER = "{{ $labels.exported_namespace }}/{{ $labels.cluster }}"


@dataclass(frozen=True)
class Alert:
    """One alert and its part of the runbook.

    `expression` is PromQL, true while the fault lasts; `minutes` is for how long it must be true. `look` has commands
    with $NAMESPACE, $CLUSTER and $POD.
    """

    name: str
    expression: str
    minutes: int
    severity: str
    summary: str
    means: str
    clients: str
    look: tuple[str, ...]
    do: str
    over: str


def increased(counter: str, window: str) -> str:
    """PromQL that is true if `counter` rose within `window` or was born in it: a labelled counter of a pod first
    appears with its first event, which increase() alone does not see."""
    return f"increase({counter}[{window}]) > 0 or {counter} > 0 unless {counter} offset {window}"


STATUS = "kubectl muster status $CLUSTER -n $NAMESPACE"
ALL_STATUS = "kubectl muster status -A"
DRAIN = "`kubectl muster drain $POD -n $NAMESPACE` takes its leaders off it meanwhile; `--undo` takes that back."
PARTITIONS = "kubectl -n $NAMESPACE get offsetspartitions -o wide"
CONDITIONS = "kubectl -n $NAMESPACE describe coordinatorcluster $CLUSTER"
ALL_CONDITIONS = "kubectl -n $NAMESPACE describe coordinatorclusters"
POD_LOG = "kubectl -n $NAMESPACE logs $POD --tail=200"
POD_EVENTS = "kubectl -n $NAMESPACE describe pod $POD"
OPERATOR_LOG = "kubectl -n muster-system logs deployment/muster-operator --tail=200"
MOVES = "kubectl muster groups moves -n $NAMESPACE"
GATEWAY_LOG = "kubectl -n $NAMESPACE logs -l app.kubernetes.io/name=muster-gateway --tail=200"

JOBS = (
    "kubectl -n $NAMESPACE get musterbackups -o wide",
    "kubectl -n $NAMESPACE get jobs -l muster.dev/backup-of=$CLUSTER",
)
JOB_LOG = "kubectl -n $NAMESPACE logs -l muster.dev/backup-of=$CLUSTER --tail=50"


def trouble_of_backups(condition: str) -> str:
    """PromQL that is true while a cluster has this condition."""
    labels = "namespace, exported_namespace, cluster"
    return f'max by ({labels}) (muster_operator_backup_troubles{{condition="{condition}"}}) > 0'


LEADERSHIP = (
    Alert(
        "MusterPartitionsLeaderless",
        "max by (namespace, exported_namespace, cluster) (muster_operator_leaderless_partitions) > 0",
        1,
        "critical",
        "Cluster " + CLUSTER + " has offsets partitions without a leader.",
        "Partitions had no active leader for a minute. A failover takes less than a second, so something keeps the "
        "operator from electing one.",
        "Groups of these partitions find no coordinator. They cannot commit, and their members cannot join.",
        (STATUS, PARTITIONS, CONDITIONS, OPERATOR_LOG),
        "State and message of each OffsetsPartition say which pods are missing, and why. "
        "`kubectl muster explain` says of each what happens next. Bring a majority of the replicas back. If it is lost "
        "for good, `kubectl muster allow-data-loss` says what is left and asks ([a lost "
        "majority](operations.md#when-a-majority-of-replicas-is-lost-for-good)).",
        "Every partition shows the state `Led`.",
    ),
    Alert(
        "MusterPartitionFailed",
        'muster_partitions{state="FAILED"} > 0',
        1,
        "critical",
        "Pod " + POD + " leads a partition whose shard has failed.",
        "The shard stopped because its log could not be read, replayed or written.",
        "Groups of the partition get NOT_COORDINATOR until another replica leads it.",
        (PARTITIONS, POD_LOG),
        "The message of the OffsetsPartition has the reason. [Failures](failures.md#storage) says what each one needs.",
        "`muster_partitions` of the state FAILED is 0.",
    ),
    Alert(
        "MusterFailoversOften",
        'sum by (namespace) (increase(muster_operator_failover_seconds_count{kind="lost"}[1h])) > 100',
        0,
        "warning",
        "More than 100 leaderships were lost in an hour.",
        "Pods die, hang or lose one another repeatedly. One dead pod costs a failover of each partition that it led.",
        "Each failover interrupts the groups of its partition for a fraction of a second.",
        (ALL_STATUS, "kubectl get pods -A -l app.kubernetes.io/name=muster-coordinator -o wide"),
        "Find the pod that restarts: too little memory or CPU, a slow disk, or a node that fails. " + DRAIN,
        "No further failovers in `status.lastFailovers` of the CoordinatorCluster.",
    ),
    Alert(
        "MusterPeerNotHeard",
        "muster_peer_up == 0",
        5,
        "warning",
        "Pod " + POD + " has not heard {{ $labels.peer }} for five minutes.",
        "Two pods that share partitions are not connected, or one of them is away.",
        "Nothing, as long as a majority of each partition's replicas hear one another.",
        ("kubectl -n $NAMESPACE get pods -o wide", POD_LOG),
        "If the pod runs, look at network and NetworkPolicies between the two (port 9641) and at their certificates.",
        "`muster_peer_up` is 1 for every peer.",
    ),
    Alert(
        "MusterReplicasDoubled",
        "muster_doubled_replicas > 0 or "
        + increased('muster_peer_messages_dropped_total{reason=~"doubled|too_large"}', "10m")
        + " or "
        + increased('muster_peer_connection_errors_total{reason="replaced"}', "10m"),
        0,
        "critical",
        "Pod " + POD + " has met another pod with its name or its replica, or a message that is too large.",
        "Two processes have one pod name, a volume was copied, or `message.max.bytes` differs between pods.",
        "Both copies refuse to serve, so partitions may have no majority: their groups find no coordinator then.",
        (PARTITIONS, POD_LOG),
        "OffsetsPartitions name the pods with one log. [A copied volume](failures.md#a-copied-volume) says which "
        "of the two to keep, and how. `peer_replaced` in the log has the uids of two processes with one name: end one.",
        "`muster_doubled_replicas` is 0, and the counters no longer rise.",
    ),
    Alert(
        "MusterReplicasBehind",
        "muster_follower_lag > 100000 or muster_rebuilding_replicas > 0",
        30,
        "warning",
        "Replicas at pod " + POD + " have been behind for half an hour.",
        "A follower does not catch up, or a replica that has to be rebuilt is not complete.",
        "Nothing. One more failure may cost the partition its majority.",
        (PARTITIONS, POD_LOG),
        "Look at disk and CPU of the pod that is behind, and at the network to it.",
        "`muster_follower_lag` is small and `muster_rebuilding_replicas` is 0.",
    ),
)

OPERATOR = (
    Alert(
        "MusterOperatorAway",
        "absent(muster_operator_build_info)",
        5,
        "warning",
        "No operator of Muster is seen by Prometheus.",
        "The operator does not run, or is not scraped.",
        "Nothing. Leaders serve on, and replicas nominate themselves when a leader dies, after `nominateAfter`.",
        (
            "kubectl -n muster-system get deployments,pods",
            "kubectl -n muster-system describe deployment muster-operator",
            "kubectl -n muster-system get events",
        ),
        "Start it again. If it runs, look at its PodMonitor and at the NetworkPolicy for Prometheus.",
        "`muster_operator_build_info` is there.",
    ),
    Alert(
        "MusterReconcileFails",
        "sum by (namespace, pod) "
        '(increase(muster_operator_reconcile_seconds_count{result=~"failed|crashed"}[10m])) > 3',
        5,
        "warning",
        "Reconciles of the operator fail.",
        "The operator cannot read or write what it needs, or has a defect.",
        "Nothing. Failovers may be late.",
        (POD_LOG, "kubectl get coordinatorclusters -A"),
        "`reconcile_failed` in its log has the error: rights, an API server that does not answer, or an invalid "
        "object. A traceback is a defect, and ends the operator's process: report it with the log.",
        "The counter no longer rises.",
    ),
    Alert(
        "MusterCertificatesDue",
        "(max by (namespace, exported_namespace, cluster) (muster_operator_certificates_end_timestamp_seconds) > 0) "
        f"- time() < {CERTIFICATE_DAYS} * 86400",
        0,
        "critical",
        "Certificates of " + CLUSTER + " are not renewed.",
        "Less time is left than a renewed certificate ever has.",
        "Nothing yet. When they end, pods no longer hear each other, and the partitions lose their leaders.",
        (CONDITIONS, OPERATOR_LOG),
        "The condition `CertificatesDue` says why. [Security](security.md) has the ways to renew.",
        "The condition is gone.",
    ),
)

BACKUPS = (
    Alert(
        "MusterBackupTooOld",
        trouble_of_backups("BackupTooOld"),
        5,
        "critical",
        "The newest backup of " + CLUSTER + " is older than spec.backup.maxAge.",
        "No backup was made for that time. What was committed since would be lost with the volumes.",
        "Nothing.",
        (CONDITIONS, *JOBS, OPERATOR_LOG),
        "The condition `BackupTooOld` says why: the error of the last Job, or what the next one waits for, such as a "
        "pod that is not up. A MusterBackup makes one at once ([backups](backup.md#on-kubernetes)).",
        "The condition is gone.",
    ),
    Alert(
        "MusterBackupFailed",
        trouble_of_backups("BackupFailed"),
        0,
        "warning",
        "The last backup of " + CLUSTER + " failed.",
        "The Job made no backup, does not begin, or could not drop old ones; or the schedule is none.",
        "Nothing.",
        (CONDITIONS, *JOBS, JOB_LOG),
        "The condition `BackupFailed` has the error. Where it is the store, look at bucket, credentials and room. The "
        "next time of the schedule tries again; a MusterBackup does so at once.",
        "The next backup is made.",
    ),
    Alert(
        "MusterBackupVerifyFailed",
        trouble_of_backups("VerifyFailed"),
        0,
        "critical",
        "A backup of " + CLUSTER + " is not as it was written.",
        "Files of the store have changed, are missing, or are there twice. A restore refuses such a backup.",
        "Nothing.",
        (CONDITIONS, *JOBS, JOB_LOG),
        "The condition `VerifyFailed` names the files. A segment that is damaged is not sent again while the store "
        "shows one of its size: delete it there, and make a MusterBackup with `verify: true`. `muster backup verify` "
        "says which backups need it; these are lost. Then find out what has changed the store.",
        "A backup was read again and is whole.",
    ),
)

FOLLOWED = "{label} by (namespace, cluster) (last_over_time({metric}[24h]))"
"""Also of a follower that is away, for a day. A pod that came in its place goes on."""

SITES = (
    Alert(
        "MusterSiteFenced",
        "muster_site_fenced > 0",
        1,
        "critical",
        "Pod " + POD + " is of a fenced site and answers no client.",
        "The claims in the store name another site, or nobody, or the pod could not read them for a whole lease.",
        "Connections to the pod are closed. If the other site answers, clients that were led there notice nothing.",
        (ALL_CONDITIONS, POD_LOG, "kubectl -n $NAMESPACE get pods -o wide"),
        "The condition `Fenced`, and `site` in the pod's log, have the reason. *A take-over is under way*: let it end, "
        "or run it again; `muster backup take-over` with the old site's name gives it its right back. *Site X has "
        "taken over*: [end this cluster](backup.md#take-over), and let it follow that one. *The claims could not "
        "be read*, or *no claim*: look at the store, its credentials, and the network. Never restore or delete claims.",
        "`muster_site_fenced` is 0, or the pods of the old site are gone.",
    ),
    Alert(
        "MusterFollowerBehind",
        f"time() - {FOLLOWED.format(label='max', metric='muster_follow_backup_timestamp_seconds')} > "
        f"3 * {FOLLOWED.format(label='max', metric='muster_follow_interval_seconds')}",
        5,
        "critical",
        "The follower of {{ $labels.cluster }} in {{ $labels.namespace }} is behind.",
        "It has made no backup for more than three rounds, or it does not run: what was committed since would be lost "
        "with the cluster.",
        "Nothing.",
        (
            "kubectl -n $NAMESPACE get pods -l app.kubernetes.io/name=muster-follower",
            "kubectl -n $NAMESPACE logs -l app.kubernetes.io/name=muster-follower --tail=20",
        ),
        "The log has a line for each round, with the records and seconds that the store was behind, or why there was "
        "no backup: a cluster that does not answer, or a store that is full or away. If it has ended, its last line "
        "says why, such as an old site that is back, which must not be followed. Rounds longer than `--every` need "
        "a higher `--mib-per-second`. After a take-over nobody follows the old site: silence the alert for a day.",
        "`muster_follow_backup_timestamp_seconds` is recent.",
    ),
)

STORAGE = (
    Alert(
        "MusterStorageNotWritable",
        "muster_storage_writable == 0",
        0,
        "critical",
        "The storage of pod " + POD + " takes no writes.",
        "The volume is full, read-only, or has I/O errors.",
        "Groups on the pod are served by other replicas. With one replica they get COORDINATOR_NOT_AVAILABLE.",
        (POD_LOG, "kubectl -n $NAMESPACE exec $POD -- df -h /var/lib/muster", POD_EVENTS),
        "Free or add space (`spec.storage.size` may grow). With I/O errors replace the volume. " + DRAIN,
        "`muster_storage_writable` is 1; the pod tries again every second.",
    ),
    Alert(
        "MusterReplicaDamaged",
        "muster_damaged_replicas > 0",
        0,
        "critical",
        "Pod " + POD + " has a log that must not be served.",
        "The log is damaged, or its replica stopped because of a contradiction.",
        "Nothing with several replicas. With one, its groups get NOT_COORDINATOR.",
        (PARTITIONS, "kubectl -n $NAMESPACE get events --field-selector reason=LogDamaged", POD_LOG),
        "Follow [A damaged log](failures.md#a-damaged-log). Look at the disk.",
        "`muster_damaged_replicas` is 0.",
    ),
    Alert(
        "MusterLogNotCleaned",
        "muster_uncleanable_logs > 0 or " + 'increase(muster_background_runs_total{outcome="failed"}[1h]) > 3',
        10,
        "warning",
        "Cleaning, checkpoints or archiving fail on pod " + POD + ".",
        "A log cannot be read by the cleaner, or there is no room for its copy, or the archive does not take segments.",
        "Nothing. Logs grow, and loading takes longer.",
        (POD_LOG, "kubectl -n $NAMESPACE exec $POD -- df -h /var/lib/muster"),
        "`log_not_cleaned` and `segment_not_archived` in the log have the reason.",
        "`muster_uncleanable_logs` is 0 and no run fails.",
    ),
    Alert(
        "MusterArchiveBehind",
        'muster_background_lag_bytes{kind="archive"} > 0',
        30,
        "warning",
        "Segments at pod " + POD + " have waited half an hour for the archive.",
        "The archive is slow, full or away, or does not answer. The cleaner waits for it.",
        "Nothing. Logs grow.",
        (POD_LOG, "kubectl -n $NAMESPACE exec $POD -- timeout 10 df -h /var/lib/muster-archive"),
        "`segment_not_archived` in the log has the reason: give the archive room (`spec.storage.archive.size` may "
        "grow). Without such a line the archive does not answer, or `log.cleaner.io.max.bytes.per.second` is less than "
        "what is written.",
        "`muster_background_lag_bytes` of the archive is 0.",
    ),
)

REQUESTS = (
    Alert(
        "MusterCommitsTimeOut",
        "increase(muster_commit_timeouts_total[5m]) > 0",
        0,
        "critical",
        "Commits at pod " + POD + " did not become durable in time.",
        "The disk is stuck, or no majority of replicas takes the records.",
        "Requests time out and are sent again. Nothing that was acknowledged is lost.",
        (PARTITIONS, POD_LOG),
        "Look for `journal_write_slow` in the log, at the other replicas' pods, and at the CPU request of the pods. "
        "If the disk of one pod is slow: " + DRAIN,
        "`muster_commit_timeouts_total` no longer rises.",
    ),
    Alert(
        "MusterOperationErrors",
        "increase(muster_operation_errors_total[15m]) > 0",
        0,
        "warning",
        "A request failed by a defect at pod " + POD + ".",
        "A handler raised an exception. The request was refused and nothing was changed.",
        "One request got UNKNOWN_SERVER_ERROR.",
        ("kubectl -n $NAMESPACE logs $POD --tail=-1 | grep operation_failed",),
        "Report it with the log line.",
        "The counter no longer rises.",
    ),
    Alert(
        "MusterLoadsFail",
        "increase(muster_load_failures_total[15m]) > 0",
        0,
        "critical",
        "Pod " + POD + " could not load a partition.",
        "A log could not be replayed: damage, or a record of an unknown version.",
        "Groups of the partition get NOT_COORDINATOR until another replica leads.",
        (PARTITIONS, POD_LOG),
        "The message of the OffsetsPartition names file and offset. A log of a newer version needs a newer image.",
        "The partition shows the state `Led`.",
    ),
    Alert(
        "MusterClientsRefused",
        " or ".join(
            increased(f'muster_connection_errors_total{{reason="{reason}"}}', "5m")
            for reason in (
                *("too_many_connections", "too_many_of_address", "too_many_of_user", "too_many_bytes"),
                "no_descriptors",
            )
        ),
        0,
        "warning",
        "Pod " + POD + " closes connections because a limit is reached: {{ $labels.reason }}.",
        "Clients hold more connections or bytes than the [limits](limits.md) allow.",
        "Connections beyond the limit are closed. Others are served.",
        ("kubectl -n $NAMESPACE logs $POD --tail=-1 | grep -E 'connection_(refused|closed)' | tail -n 20",),
        "The log names the address or user. Mend the client, or give it a quota. Raise the limit if the load is meant.",
        "The counter no longer rises.",
    ),
    Alert(
        "MusterTransactionsHang",
        "muster_transaction_markers_missing > 0",
        5,
        "critical",
        "Decided transactions at pod " + POD + " have waited five minutes for their markers.",
        "A group's partition has no leader, or its pod cannot be reached from the transaction coordinator.",
        "Fetches of stable offsets wait, so consumers of exactly-once applications do not start.",
        (PARTITIONS, POD_LOG),
        "Partitions without a leader come first: [MusterPartitionsLeaderless](#musterpartitionsleaderless). If all are "
        "led, `peer_lost`, `pod_gave_no_answer` and `marker_refused` in the log name the pod and the reason: look at "
        "the network and certificates between the two pods.",
        "`muster_transaction_markers_missing` is 0.",
    ),
)

MIRROR_AND_GATEWAY = (
    Alert(
        "MusterMirrorStopped",
        "muster_mirror_problems > 0",
        1,
        "critical",
        "Pod " + POD + " cannot read groups from the Kafka cluster.",
        "A partition of the upstream's `__consumer_offsets` cannot be read.",
        "Groups of Muster's go on. What is shown of Kafka's groups is old, and transactional commits wait.",
        (ALL_CONDITIONS, POD_LOG),
        "The condition `Mirrored` has the reason. [Failures](failures.md#a-mirror-of-a-kafka-cluster) says what each "
        "one needs.",
        "`muster_mirror_problems` is 0.",
    ),
    Alert(
        "MusterMirrorBypassed",
        "increase(muster_mirror_records_left_out_total[5m]) > 0",
        0,
        "warning",
        "A client commits at Kafka for a group that Muster coordinates.",
        "The client still uses the brokers' own addresses.",
        "The client goes on with offsets of its own, and reads records that others of its group have read.",
        (ALL_CONDITIONS, POD_LOG),
        "Find the client and give it the gateway's address.",
        "The counter no longer rises.",
    ),
    Alert(
        "MusterWriteBackStopped",
        "muster_mirror_write_back_refused > 0 or muster_mirror_write_back_age_seconds > 60",
        5,
        "warning",
        "Offsets of groups that have moved to pod " + POD + " do not get to the Kafka cluster.",
        "A broker does not answer or refuses the offsets, or a group has members at Kafka, which takes no offsets of "
        "it then.",
        "Nothing, while Muster runs. Were all pods lost, consumers would start at Kafka from old offsets.",
        (MOVES, ALL_CONDITIONS, POD_LOG),
        "The condition `WrittenBack` of the ConsumerGroup, and `write_back_problem` in the pod's log, have the reason "
        "([what each one needs](adopt.md#a-live-group-moves)). It fires as well while many groups move one after the "
        "other, whose sessions at Kafka have to end first, and with a `muster.upstream.write.back.interval.ms` of "
        "minutes.",
        "`muster_mirror_write_back_refused` is 0, and `muster_mirror_write_back_age_seconds` a few seconds.",
    ),
    Alert(
        "MusterUpstreamRefusesLogin",
        "increase(muster_mirror_connections_refused_total[5m]) > 0 or "
        + increased("muster_gateway_connections_refused_total", "5m"),
        5,
        "critical",
        "A login or certificate is refused between Muster and the Kafka cluster ({{ $labels.reason }}).",
        "The Secret does not fit the brokers, or a certificate has ended.",
        "Clients of the gateway may not get connections. Reads of the mirror are old.",
        (POD_LOG, GATEWAY_LOG),
        "Correct the Secret. Files are read again by themselves.",
        "The counter no longer rises.",
    ),
    Alert(
        "MusterGatewayCutOff",
        "muster_gateway_reachable == 0",
        1,
        "critical",
        "Gateway " + POD + " does not reach {{ $labels.cluster }}.",
        "The cluster did not answer for a minute.",
        "Without `upstream` clients get no data; without `muster` their group requests wait.",
        (GATEWAY_LOG, "kubectl -n $NAMESPACE get pods,services"),
        "Look at the network, the address in the gateway's settings, and the cluster itself.",
        "`muster_gateway_reachable` is 1.",
    ),
    Alert(
        "MusterGatewayRequestsWait",
        "muster_gateway_group_requests_waiting > 0",
        1,
        "warning",
        "Group requests have waited for a minute at gateway " + POD + ".",
        "No leader takes them.",
        "Commits and joins are late, and are given up after `park.ms`.",
        (PARTITIONS, GATEWAY_LOG),
        "Look at MusterPartitionsLeaderless, and at the network between gateway and pods.",
        "`muster_gateway_group_requests_waiting` is 0.",
    ),
)

GROUPS: dict[str, tuple[Alert, ...]] = {
    "muster-leadership": LEADERSHIP,
    "muster-operator": OPERATOR,
    "muster-storage": STORAGE,
    "muster-backups": BACKUPS,
    "muster-sites": SITES,
    "muster-requests": REQUESTS,
    "muster-mirror-and-gateway": MIRROR_AND_GATEWAY,
}
"""The alerts by the name of their group of rules."""

ALERTS: tuple[Alert, ...] = tuple(alert for group in GROUPS.values() for alert in group)

TRIED = (
    *("MusterPartitionsLeaderless", "MusterFailoversOften", "MusterPeerNotHeard", "MusterReplicasBehind"),
    *("MusterOperatorAway", "MusterReconcileFails", "MusterCertificatesDue"),
    *("MusterStorageNotWritable", "MusterLogNotCleaned", "MusterCommitsTimeOut", "MusterClientsRefused"),
)
"""Alerts whose faults tests/kubernetes/test_alerts.py makes."""

TRIED_BEFORE_KAFKA = (
    *("MusterMirrorStopped", "MusterMirrorBypassed", "MusterWriteBackStopped", "MusterUpstreamRefusesLogin"),
    *("MusterGatewayCutOff", "MusterGatewayRequestsWait"),
)
"""Likewise tests/kubernetes/test_alerts_before_kafka.py."""

TRIED_ON_LOGS = (
    *("MusterPartitionFailed", "MusterReplicasDoubled", "MusterReplicaDamaged", "MusterArchiveBehind"),
    *("MusterOperationErrors", "MusterLoadsFail", "MusterTransactionsHang"),
    *("MusterBackupTooOld", "MusterBackupFailed", "MusterBackupVerifyFailed"),
)
"""Likewise tests/kubernetes/test_alerts_on_logs.py."""

TRIED_ON_SITES = ("MusterSiteFenced", "MusterFollowerBehind")
"""Likewise tests/kubernetes/test_alerts_of_sites.py."""
