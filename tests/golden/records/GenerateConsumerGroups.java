import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.coordinator.group.generated.*;

/** Prints keys and values of the records of consumer groups (KIP-848) as Kafka writes them.
 *
 * With the jars of org.apache.kafka:kafka_2.13:4.3.1 in libs: java -cp "libs/*" GenerateConsumerGroups.java
 */
public class GenerateConsumerGroups {
    static final Uuid T = new Uuid(0x0102030405060708L, 0x090a0b0c0d0e0f10L), U = new Uuid(-2L, 5L);

    static void put(String name, ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        System.out.println(name + " " + HexFormat.of().formatHex(bytes));
    }

    static void key(String name, ApiMessage message) { put(name + "-key", MessageUtil.toCoordinatorTypePrefixedByteBuffer(message)); }
    static void value(String name, Message message) { put(name + "-value", MessageUtil.toVersionPrefixedByteBuffer((short) 0, message)); }

    static ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions owned(Uuid topic, List<Integer> partitions, List<Integer> epochs) {
        return new ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions().setTopicId(topic).setPartitions(partitions).setAssignmentEpochs(epochs);
    }

    static ConsumerGroupTargetAssignmentMemberValue.TopicPartition target(Uuid topic, List<Integer> partitions) {
        return new ConsumerGroupTargetAssignmentMemberValue.TopicPartition().setTopicId(topic).setPartitions(partitions);
    }

    public static void main(String[] arguments) {
        key("metadata", new ConsumerGroupMetadataKey().setGroupId("group-ä"));
        value("metadata", new ConsumerGroupMetadataValue().setEpoch(3).setMetadataHash(-7_000_000_000L));
        value("metadata-plain", new ConsumerGroupMetadataValue().setEpoch(3));
        key("partition-metadata", new ConsumerGroupPartitionMetadataKey().setGroupId("group-ä"));
        value("partition-metadata", new ConsumerGroupPartitionMetadataValue().setTopics(List.of(new ConsumerGroupPartitionMetadataValue.TopicMetadata().setTopicId(T).setTopicName("t").setNumPartitions(3).setPartitionMetadata(List.of()))));
        key("member", new ConsumerGroupMemberMetadataKey().setGroupId("group-ä").setMemberId("member-1"));
        ConsumerGroupMemberMetadataValue member = new ConsumerGroupMemberMetadataValue().setInstanceId("instance").setRackId("rack").setClientId("client").setClientHost("/10.0.0.1").setSubscribedTopicNames(List.of("bar", "foo")).setSubscribedTopicRegex("foo.*").setRebalanceTimeoutMs(300_000).setServerAssignor("uniform").setClassicMemberMetadata(null);
        value("member", member);
        value("member-classic", member.duplicate().setInstanceId(null).setRackId(null).setServerAssignor(null).setSubscribedTopicRegex("").setClassicMemberMetadata(
            new ConsumerGroupMemberMetadataValue.ClassicMemberMetadata().setSessionTimeoutMs(45_000).setSupportedProtocols(List.of(
                new ConsumerGroupMemberMetadataValue.ClassicProtocol().setName("range").setMetadata(new byte[]{0, 1, 2}),
                new ConsumerGroupMemberMetadataValue.ClassicProtocol().setName("cooperative-sticky").setMetadata(new byte[200])))));
        value("member-bare", new ConsumerGroupMemberMetadataValue().setInstanceId(null).setRackId(null).setClientId("").setClientHost("").setSubscribedTopicNames(List.of()).setSubscribedTopicRegex(null).setRebalanceTimeoutMs(-1).setServerAssignor(null).setClassicMemberMetadata(null));
        key("target-metadata", new ConsumerGroupTargetAssignmentMetadataKey().setGroupId("group-ä"));
        value("target-metadata", new ConsumerGroupTargetAssignmentMetadataValue().setAssignmentEpoch(3).setAssignmentTimestamp(1700000000123L));
        value("target-metadata-plain", new ConsumerGroupTargetAssignmentMetadataValue().setAssignmentEpoch(3));
        key("target-member", new ConsumerGroupTargetAssignmentMemberKey().setGroupId("group-ä").setMemberId("member-1"));
        value("target-member", new ConsumerGroupTargetAssignmentMemberValue().setTopicPartitions(List.of(target(U, List.of(17, 1)), target(T, List.of(0)))));
        value("target-member-empty", new ConsumerGroupTargetAssignmentMemberValue().setTopicPartitions(List.of()));
        key("current", new ConsumerGroupCurrentMemberAssignmentKey().setGroupId("group-ä").setMemberId("member-1"));
        value("current", new ConsumerGroupCurrentMemberAssignmentValue().setMemberEpoch(3).setPreviousMemberEpoch(2).setState((byte) 1).setAssignedPartitions(List.of(owned(T, List.of(0, 1), List.of(2, 3)))).setPartitionsPendingRevocation(List.of(owned(U, List.of(5), List.of(1)))));
        value("current-before-4.3", new ConsumerGroupCurrentMemberAssignmentValue().setMemberEpoch(3).setPreviousMemberEpoch(2).setState((byte) 127).setAssignedPartitions(List.of(owned(T, List.of(0, 1), List.of()))).setPartitionsPendingRevocation(List.of()));
        key("regex", new ConsumerGroupRegularExpressionKey().setGroupId("group-ä").setRegularExpression("foo|bar.*"));
        value("regex", new ConsumerGroupRegularExpressionValue().setTopics(List.of("bar", "foo")).setVersion(10).setTimestamp(1700000000123L));
        value("regex-empty", new ConsumerGroupRegularExpressionValue().setTopics(List.of()).setVersion(0).setTimestamp(-1));
    }
}
