import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/**
 * A member that commits every 10 ms with Kafka's own library: BOOTSTRAP TOPIC GROUP. Prints "assigned" at each assignment,
 * "committed N" when a commit was acknowledged, "error TEXT" when one failed. SIGTERM: it leaves the group.
 */
public class Committer {
    static volatile boolean stopped;

    public static void main(String[] words) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", words[0]);
        settings.put("group.id", words[2]);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", "10000");
        settings.put("heartbeat.interval.ms", "500");
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(words[1]), new ConsumerRebalanceListener() {
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) { }
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) { System.out.println("assigned"); }
        });
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopped = true;
            try { main.join(); } catch (InterruptedException ignored) { }
        }));
        TopicPartition partition = new TopicPartition(words[1], 0);
        for (long offset = 1; !stopped; ) {
            consumer.poll(Duration.ofMillis(10));
            if (consumer.assignment().isEmpty()) continue;
            try {
                consumer.commitSync(Map.of(partition, new OffsetAndMetadata(offset)));
                System.out.println("committed " + offset++);
            } catch (Exception error) {
                System.out.println("error " + error.toString().replace('\n', ' '));
            }
        }
        consumer.close();
    }
}
