import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** One member of a group that joins, commits, reads the offset back and leaves; see capture.py. */
public class GoldenClient {
    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[1]);
        properties.put("enable.auto.commit", "false");
        try (Consumer<String, String> consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(arguments[2]));
            while (consumer.assignment().isEmpty()) consumer.poll(Duration.ofMillis(100));
            consumer.poll(Duration.ofSeconds(4));
            TopicPartition partition = new TopicPartition(arguments[2], 0);
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(45, "x")));
            if (consumer.committed(Set.of(partition)).get(partition).offset() != 45) throw new AssertionError();
        }
    }
}
