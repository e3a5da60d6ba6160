import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.message.DeleteGroupsResponseData.*;
import org.apache.kafka.common.message.TxnOffsetCommitRequestData.*;
import org.apache.kafka.common.message.TxnOffsetCommitResponseData.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.requests.*;

/** Prints requests and answers of the versions that Kafka 4.4 added, each with its header and without its length.
 *
 * With the jars of org.apache.kafka:kafka_2.13:4.4.0 in libs: java -cp "libs/*" GenerateKafka44.java
 */
public class GenerateKafka44 {
    static final Uuid ORDERS = new Uuid(0x0102030405060708L, 0x090a0b0c0d0e0f10L), ZERO = Uuid.ZERO_UUID;

    static void put(String name, ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        System.out.println(name + " " + HexFormat.of().formatHex(bytes));
    }

    static void request(String name, ApiKeys key, int version, ApiMessage data) {
        put("request-" + name, RequestUtils.serialize(
            new RequestHeader(key, (short) version, "client-ä", 7).data(), key.requestHeaderVersion((short) version), data, (short) version));
    }

    static void answer(String name, ApiKeys key, int version, ApiMessage data) {
        put("answer-" + name, RequestUtils.serialize(
            new ResponseHeader(7, key.responseHeaderVersion((short) version)).data(), key.responseHeaderVersion((short) version), data, (short) version));
    }

    static TxnOffsetCommitRequestTopic commits(Uuid id, TxnOffsetCommitRequestPartition... partitions) {
        return new TxnOffsetCommitRequestTopic().setTopicId(id).setPartitions(List.of(partitions));
    }

    static TxnOffsetCommitRequestPartition commit(int partition, long offset, int epoch, String metadata) {
        return new TxnOffsetCommitRequestPartition().setPartitionIndex(partition).setCommittedOffset(offset)
            .setCommittedLeaderEpoch(epoch).setCommittedMetadata(metadata);
    }

    static TxnOffsetCommitResponsePartition code(int partition, int code) {
        return new TxnOffsetCommitResponsePartition().setPartitionIndex(partition).setErrorCode((short) code);
    }

    static ApiVersionsRequestData client(String cluster, int node) {
        return new ApiVersionsRequestData().setClientSoftwareName("java").setClientSoftwareVersion("4.4.0").setClusterId(cluster).setNodeId(node);
    }

    public static void main(String[] arguments) {
        ApiKeys versions = ApiKeys.API_VERSIONS, commit = ApiKeys.TXN_OFFSET_COMMIT, delete = ApiKeys.DELETE_GROUPS;
        request("api-versions-of-a-server", versions, 5, client("cluster-ä", 3));
        request("api-versions-of-any", versions, 5, client(null, -1));
        answer("api-versions-another-server", versions, 5, new ApiVersionsResponseData().setErrorCode((short) 129));
        ApiVersionsResponseData.ApiVersionCollection known = new ApiVersionsResponseData.ApiVersionCollection();
        known.add(new ApiVersionsResponseData.ApiVersion().setApiKey((short) 18).setMinVersion((short) 0).setMaxVersion((short) 5));
        answer("api-versions-unknown-version", versions, 0, new ApiVersionsResponseData().setErrorCode((short) 35).setApiKeys(known));
        TxnOffsetCommitRequestData commits = new TxnOffsetCommitRequestData().setTransactionalId("tx-ä").setGroupId("g").setProducerId(77)
            .setProducerEpoch((short) 5);
        request("txn-offset-commit-of-nobody", commit, 6, commits.duplicate());
        request("txn-offset-commit-of-a-member", commit, 6, commits.duplicate().setGenerationIdOrMemberEpoch(9).setMemberId("m")
            .setGroupInstanceId("i").setTopics(List.of(commits(ORDERS, commit(0, 42, 3, "x"), commit(1, 43, -1, null)), commits(ZERO))));
        answer("txn-offset-commit-of-topics", commit, 6, new TxnOffsetCommitResponseData().setTopics(List.of(
            new TxnOffsetCommitResponseTopic().setTopicId(ORDERS).setPartitions(List.of(code(0, 0), code(1, 113))),
            new TxnOffsetCommitResponseTopic().setTopicId(ZERO).setPartitions(List.of(code(2, 100))))));
        answer("txn-offset-commit-of-nothing", commit, 6, new TxnOffsetCommitResponseData());
        request("delete-groups", delete, 3, new DeleteGroupsRequestData().setGroupsNames(List.of("g", "group-ä")));
        DeletableGroupResultCollection results = new DeletableGroupResultCollection();
        results.add(new DeletableGroupResult().setGroupId("g"));
        results.add(new DeletableGroupResult().setGroupId("group-ä").setErrorCode((short) 68));
        answer("delete-groups", delete, 3, new DeleteGroupsResponseData().setResults(results));
    }
}
