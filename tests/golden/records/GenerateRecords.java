import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.record.*;
import org.apache.kafka.coordinator.group.generated.*;

/** Prints record keys, record values and record batches as Kafka writes them.
 *
 * With the jars of org.apache.kafka:kafka_2.13:4.1.0 in libs: java -cp "libs/*" GenerateRecords.java
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
