import java.util.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.coordinator.transaction.*;
import org.apache.kafka.coordinator.transaction.generated.*;
import org.apache.kafka.server.common.TransactionVersion;

/** Prints the records that Kafka's transaction coordinator writes, step by step.
 *
 * With the jars of org.apache.kafka:kafka_2.13:4.3.1 in libs: java -cp "libs/*" GenerateTransactions.java
 */
public class GenerateTransactions {
    static final String OFFSETS = "__consumer_offsets";
    static long now = 1700000000000L;
    static TransactionMetadata txn;
    static String name;

    static void put(String what, byte[] bytes) { System.out.println(what + " " + HexFormat.of().formatHex(bytes)); }
    static long tick() { return now += 1000; }

    static void begin(String scenario, long producerId, int epoch, TransactionState state) {
        name = scenario;
        now = 1700000000000L;
        txn = new TransactionMetadata("tx-ä", producerId, -1L, -1L, (short) epoch, (short) -1, 60000, state, new HashSet<TopicPartition>(), -1L, now, TransactionVersion.TV_0);
    }

    /** Writes the record of a transition, and makes the transition. */
    static void step(String what, TxnTransitMetadata to) {
        put(name + "." + what, TransactionLog.valueToBytes(to, TransactionVersion.TV_2));
        txn.completeTransitionTo(to);
    }

    static void init(String what, Short expected) {
        step(what, txn.prepareIncrementProducerEpoch(60000, Optional.ofNullable(expected), tick()));
    }

    static void rotate(String what, long id) { step(what, txn.prepareProducerIdRotation(id, 30000, tick(), false)); }

    static void add(String what, TransactionVersion version, int... partitions) {
        Set<TopicPartition> added = new HashSet<>();
        for (int p : partitions) added.add(new TopicPartition(OFFSETS, p));
        step(what, txn.prepareAddPartitions(added, tick(), version));
    }

    static void end(String what, TransactionState state, TransactionVersion version, long nextId, boolean nothing) {
        step(what, txn.prepareAbortOrCommit(state, version, nextId, tick(), nothing));
    }

    static void complete(String what) { step(what, txn.prepareComplete(tick())); }

    public static void main(String[] x) {
        TransactionVersion v0 = TransactionVersion.TV_0, v2 = TransactionVersion.TV_2;
        put("key", TransactionLog.keyToBytes("tx-ä"));
        put("key-of-producer-ids", TransactionLog.keyToBytes(""));
        put("producer-ids", MessageUtil.toVersionPrefixedBytes((short) 1, new TransactionLogValue().setProducerId((1L << 40) + 1000).setProducerEpoch((short) -1).setTransactionTimeoutMs(0).setTransactionStatus((byte) 0).setTransactionPartitions(null).setTransactionLastUpdateTimestampMs(1700000000000L).setTransactionStartTimestampMs(-1)));
        TransactionLogValue all = new TransactionLogValue().setProducerId(9).setProducerEpoch((short) 3).setTransactionTimeoutMs(60000).setTransactionStatus((byte) 1).setTransactionLastUpdateTimestampMs(1700000000001L).setTransactionStartTimestampMs(1700000000000L).setTransactionPartitions(List.of(new TransactionLogValue.PartitionsSchema().setTopic("t-ü").setPartitionIds(List.of(0, 7)), new TransactionLogValue.PartitionsSchema().setTopic(OFFSETS).setPartitionIds(List.of(200))));
        put("value-0", MessageUtil.toVersionPrefixedBytes((short) 0, all));
        put("value-1", MessageUtil.toVersionPrefixedBytes((short) 1, all.setPreviousProducerId(8).setNextProducerId(10).setClientTransactionVersion((short) 2)));
        put("value-1-with-next-epoch", MessageUtil.toVersionPrefixedBytes((short) 1, all.setNextProducerEpoch((short) 4)));
        put("value-0-empty", MessageUtil.toVersionPrefixedBytes((short) 0, new TransactionLogValue().setProducerId(9).setTransactionPartitions(null)));

        begin("v0", 5L, -1, TransactionState.EMPTY);
        init("init", null);
        add("add", v0, 3);
        add("add-another", v0, 3, 1);
        end("commit", TransactionState.PREPARE_COMMIT, v0, -1L, false);
        complete("committed");
        add("add-again", v0, 2);
        end("abort", TransactionState.PREPARE_ABORT, v0, -1L, false);
        complete("aborted");
        init("init-again", null);
        init("continue", (short) 1);

        begin("v2", 6L, -1, TransactionState.EMPTY);
        init("init", null);
        add("add", v2, 3);
        end("commit", TransactionState.PREPARE_COMMIT, v2, -1L, false);
        complete("committed");
        end("abort-nothing", TransactionState.PREPARE_ABORT, v2, -1L, true);
        complete("aborted-nothing");
        init("init-again", null);

        begin("exhausted", 7L, Short.MAX_VALUE - 2, TransactionState.COMPLETE_COMMIT);
        init("init", null);
        add("add", v2, 3);
        end("commit", TransactionState.PREPARE_COMMIT, v2, 8L, false);
        complete("committed");
        add("add-again", v2, 4);
        end("abort", TransactionState.PREPARE_ABORT, v2, -1L, false);
        complete("aborted");

        begin("rotated", 7L, Short.MAX_VALUE - 2, TransactionState.EMPTY);
        init("init", null);
        rotate("rotate", 8L);
        add("add", v0, 4);
    }
}
