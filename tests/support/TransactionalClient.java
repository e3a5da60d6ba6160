import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/**
 * Transactional producers of Kafka's own library, driven by lines; see java_producers.py. Each line is answered with
 * "ok", "ok VALUE", or "error CLASS MESSAGE".
 */
public class TransactionalClient {
    static final TopicPartition PARTITION = new TopicPartition("t", 0);
    static final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    static Properties common;
    static Consumer<byte[], byte[]> consumer;

    public static void main(String[] arguments) throws Exception {
        common = new Properties();
        common.put("bootstrap.servers", arguments[0]);
        common.put("reconnect.backoff.ms", "20");
        common.put("reconnect.backoff.max.ms", "100");
        Properties reads = new Properties();
        reads.putAll(common);
        reads.put("group.id", arguments[1]);
        reads.put("enable.auto.commit", "false");
        reads.put("isolation.level", "read_committed");
        consumer = new KafkaConsumer<>(reads, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ok");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                System.out.println(("ok " + call(line.split(" "))).trim());
            } catch (Exception error) {
                Throwable cause = error.getCause() == null ? error : error.getCause();
                System.out.println("error " + error.getClass().getSimpleName() + " " + cause.getClass().getSimpleName()
                    + " " + String.valueOf(error.getMessage()).replace('\n', ' '));
            }
        }
        for (KafkaProducer<byte[], byte[]> each : producers.values()) each.close(Duration.ZERO);
        System.exit(0);
    }

    static String call(String[] words) {
        String name = words[1];
        switch (words[0]) {
            case "open": // NAME TRANSACTIONAL_ID TIME_OUT_MS
                Properties writes = new Properties();
                writes.putAll(common);
                writes.put("transactional.id", words[2]);
                writes.put("transaction.timeout.ms", words[3]);
                producers.put(name, new KafkaProducer<>(writes, new ByteArraySerializer(), new ByteArraySerializer()));
                return "";
            case "init":
                producers.get(name).initTransactions();
                return "";
            case "begin":
                producers.get(name).beginTransaction();
                return "";
            case "send": // NAME OFFSET
                Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(PARTITION, new OffsetAndMetadata(Long.parseLong(words[2])));
                producers.get(name).sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                return "";
            case "commit":
                producers.get(name).commitTransaction();
                return "";
            case "abort":
                producers.get(name).abortTransaction();
                return "";
            case "close":
                producers.remove(name).close(Duration.ZERO);
                return "";
            case "committed": // any name
                OffsetAndMetadata found = consumer.committed(Set.of(PARTITION)).get(PARTITION);
                return found == null ? "none" : String.valueOf(found.offset());
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }
}
