import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.coordinator.group.generated.*;

/** Prints record keys, record values and record batches as Kafka writes them.
 *
 * With the jars of org.apache.kafka:kafka_2.13:4.3.1 in libs: java -cp "libs/*" GenerateRecords.java
 */
public class GenerateRecords {
    static String hex(ByteBuffer b) { byte[] a = new byte[b.remaining()]; b.duplicate().get(a); return HexFormat.of().formatHex(a); }
    static void put(String name, ByteBuffer b) { System.out.println(name + " " + hex(b)); }
    static byte[] b(String s) { return s.getBytes(java.nio.charset.StandardCharsets.UTF_8); }
    static MemoryRecords batch(Compression c, SimpleRecord... r) { return MemoryRecords.withRecords((byte) 2, 42L, c, TimestampType.CREATE_TIME, -1L, (short) -1, 0, 7, false, r); }
    public static void main(String[] x) {
        put("offset-commit-key", MessageUtil.toCoordinatorTypePrefixedByteBuffer(new OffsetCommitKey().setGroup("group-ä").setTopic("topic").setPartition(3)));
        for (short v = 0; v <= 4; v++) {
            OffsetCommitValue o = new OffsetCommitValue().setOffset(1234567890123L).setMetadata("meta-ü").setCommitTimestamp(1700000000123L);
            if (v == 1) o.setExpireTimestamp(1700000099999L);
            if (v >= 3) o.setLeaderEpoch(9);
            put("offset-commit-value-" + v, MessageUtil.toVersionPrefixedByteBuffer(v, o));
        }
        put("offset-commit-value-3-empty-metadata", MessageUtil.toVersionPrefixedByteBuffer((short) 3, new OffsetCommitValue().setOffset(5).setLeaderEpoch(-1).setMetadata("").setCommitTimestamp(1)));
        Uuid topicId = new Uuid(0x0102030405060708L, 0x090a0b0c0d0e0f10L);
        put("offset-commit-value-4-topic-id", MessageUtil.toVersionPrefixedByteBuffer((short) 4, new OffsetCommitValue().setOffset(1234567890123L).setLeaderEpoch(9).setMetadata("meta-ü").setCommitTimestamp(1700000000123L).setTopicId(topicId)));
        put("offset-commit-value-4-long-metadata", MessageUtil.toVersionPrefixedByteBuffer((short) 4, new OffsetCommitValue().setOffset(5).setLeaderEpoch(-1).setMetadata("m".repeat(200)).setCommitTimestamp(1).setTopicId(topicId)));
        put("offset-commit-value-4-empty-metadata", MessageUtil.toVersionPrefixedByteBuffer((short) 4, new OffsetCommitValue().setOffset(5).setLeaderEpoch(-1).setMetadata("").setCommitTimestamp(1)));
        put("offset-commit-value-4-empty-metadata-topic-id", MessageUtil.toVersionPrefixedByteBuffer((short) 4, new OffsetCommitValue().setOffset(5).setLeaderEpoch(-1).setMetadata("").setCommitTimestamp(1).setTopicId(topicId)));
        put("group-metadata-key", MessageUtil.toCoordinatorTypePrefixedByteBuffer(new GroupMetadataKey().setGroup("group-ä")));
        for (short v = 0; v <= 4; v++) {
            List<GroupMetadataValue.MemberMetadata> ms = new ArrayList<>();
            for (int i = 0; i < 2; i++) {
                GroupMetadataValue.MemberMetadata m = new GroupMetadataValue.MemberMetadata().setMemberId("member-" + i).setClientId("client").setClientHost("/10.0.0.1").setSessionTimeout(45000).setSubscription(new byte[]{0, 1, 2}).setAssignment(i == 0 ? new byte[0] : new byte[]{3, 4});
                if (v >= 1) m.setRebalanceTimeout(300000);
                if (v >= 3 && i == 0) m.setGroupInstanceId("instance-0");
                ms.add(m);
            }
            GroupMetadataValue g = new GroupMetadataValue().setProtocolType("consumer").setGeneration(17).setProtocol("range").setLeader("member-0").setMembers(ms);
            if (v >= 2) g.setCurrentStateTimestamp(1700000000456L);
            put("group-metadata-value-" + v, MessageUtil.toVersionPrefixedByteBuffer(v, g));
        }
        put("group-metadata-value-3-empty", MessageUtil.toVersionPrefixedByteBuffer((short) 3, new GroupMetadataValue().setProtocolType("").setGeneration(0).setProtocol(null).setLeader(null).setCurrentStateTimestamp(1).setMembers(List.of())));
        put("consumer-group-metadata-key", MessageUtil.toCoordinatorTypePrefixedByteBuffer(new ConsumerGroupMetadataKey().setGroupId("g")));
        for (CoordinatorRecordType t : CoordinatorRecordType.values()) put("record-type-" + t.name(), ByteBuffer.allocate(2).putShort(0, t.id()));
        put("consumer-group-target-assignment-metadata-key", MessageUtil.toCoordinatorTypePrefixedByteBuffer(new ConsumerGroupTargetAssignmentMetadataKey().setGroupId("g")));
        put("consumer-group-target-assignment-metadata-value", MessageUtil.toVersionPrefixedByteBuffer((short) 0, new ConsumerGroupTargetAssignmentMetadataValue().setAssignmentEpoch(3).setAssignmentTimestamp(1700000000123L)));
        put("consumer-group-current-member-assignment-key", MessageUtil.toCoordinatorTypePrefixedByteBuffer(new ConsumerGroupCurrentMemberAssignmentKey().setGroupId("g").setMemberId("m")));
        put("consumer-group-current-member-assignment-value", MessageUtil.toVersionPrefixedByteBuffer((short) 0, new ConsumerGroupCurrentMemberAssignmentValue().setMemberEpoch(3).setPreviousMemberEpoch(2).setAssignedPartitions(List.of(new ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions().setTopicId(topicId).setPartitions(List.of(0, 1)).setAssignmentEpochs(List.of(2, 3)))).setPartitionsPendingRevocation(List.of())));
        put("streams-group-metadata-key", MessageUtil.toCoordinatorTypePrefixedByteBuffer(new StreamsGroupMetadataKey().setGroupId("g")));
        put("streams-group-metadata-value", MessageUtil.toVersionPrefixedByteBuffer((short) 0, new StreamsGroupMetadataValue().setEpoch(3).setMetadataHash(7).setValidatedTopologyEpoch(2)));
        SimpleRecord one = new SimpleRecord(1700000000123L, b("key"), b("value"));
        put("batch-one", batch(Compression.NONE, one).buffer());
        SimpleRecord[] many = new SimpleRecord[3];
        many[0] = one; many[1] = new SimpleRecord(1700000000123L, b("k".repeat(100)), null); many[2] = new SimpleRecord(1700000000123L, b("key3"), b("v".repeat(9000)));
        put("batch-tombstone-and-large", batch(Compression.NONE, many).buffer());
        SimpleRecord[] times = { new SimpleRecord(1700000000123L, b("a"), b("1")), new SimpleRecord(1700000000000L, b("b"), b("2")), new SimpleRecord(1700000009999L, b("c"), b("3")) };
        put("batch-timestamps", batch(Compression.NONE, times).buffer());
        put("batch-gzip", batch(Compression.gzip().build(), times).buffer());
        put("batch-snappy", batch(Compression.snappy().build(), times).buffer());
        put("batch-lz4", batch(Compression.lz4().build(), times).buffer());
        put("batch-zstd", batch(Compression.zstd().build(), times).buffer());
        put("batch-transactional", MemoryRecords.withTransactionalRecords((byte) 2, 42L, Compression.NONE, 1000L, (short) 5, 0, 7, one).buffer());
        for (ControlRecordType t : new ControlRecordType[]{ControlRecordType.ABORT, ControlRecordType.COMMIT})
            put("batch-end-txn-" + t.name().toLowerCase(), MemoryRecords.withEndTransactionMarker(42L, 1700000000123L, 7, 1000L, (short) 5, new EndTransactionMarker(t, 11)).buffer());
        LeaderChangeMessage lc = new LeaderChangeMessage().setVersion((short) 0).setLeaderId(2).setVoters(List.of(new LeaderChangeMessage.Voter().setVoterId(1), new LeaderChangeMessage.Voter().setVoterId(2))).setGrantingVoters(List.of(new LeaderChangeMessage.Voter().setVoterId(2)));
        put("batch-leader-change", MemoryRecords.withLeaderChangeMessage(42L, 1700000000123L, 7, ByteBuffer.allocate(512), lc).buffer());
        ByteBuffer empty = ByteBuffer.allocate(61);
        DefaultRecordBatch.writeEmptyHeader(empty, (byte) 2, -1L, (short) -1, -1, 42L, 49L, 7, TimestampType.CREATE_TIME, 1700000000123L, false, false);
        empty.flip();
        put("batch-emptied-by-compaction", empty);
        put("batch-with-headers", batch(Compression.NONE, new SimpleRecord(1700000000123L, b("key"), b("value"), new org.apache.kafka.common.header.Header[]{new org.apache.kafka.common.header.internals.RecordHeader("h", b("1"))})).buffer());
    }
}
