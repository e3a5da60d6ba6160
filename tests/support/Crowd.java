import java.time.Duration;
import java.util.*;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/**
 * Many members of groups with Kafka's own library, a thread each; see crowd.py for what they print.
 *
 * <p>eager|cooperative BOOTSTRAP TOPIC PERIOD_MS SESSION_MS GROUP[/INSTANCE]...
 */
public class Crowd {
    static final Map<String, Class<?>> ASSIGNORS =
        Map.of("eager", RangeAssignor.class, "cooperative", CooperativeStickyAssignor.class);

    static void consume(String[] words, int number) {
        String[] names = words[5 + number].split("/");
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", words[1],
            "group.id", names[0],
            "partition.assignment.strategy", List.of(ASSIGNORS.get(words[0])),
            "session.timeout.ms", words[4],
            "auto.offset.reset", "earliest",
            "enable.auto.commit", "false"));
        if (names.length > 1) settings.put("group.instance.id", names[1]);
        var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        var read = new HashMap<TopicPartition, OffsetAndMetadata>();
        consumer.subscribe(List.of(words[2]), new ConsumerRebalanceListener() {
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                System.out.println(number + " taken " + partitions.size());
                read.keySet().removeAll(partitions);
            }

            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                System.out.println(number + " given " + partitions.size());
            }
        });
        long periodMs = Long.parseLong(words[3]);
        boolean[] waits = {false}; // for the answer to a commit, of which it has one at a time
        for (long dueMs = 0;;) {
            for (var each : consumer.poll(Duration.ofMillis(50))) {
                read.put(new TopicPartition(each.topic(), each.partition()), new OffsetAndMetadata(each.offset() + 1));
                System.out.println(number + " record " + System.currentTimeMillis() + " " + each.value());
            }
            long nowMs = System.currentTimeMillis();
            if (waits[0] || nowMs < dueMs || read.isEmpty()) continue;
            waits[0] = true;
            dueMs = Math.max(dueMs + periodMs, nowMs);
            consumer.commitAsync(Map.copyOf(read), (offsets, error) -> {
                waits[0] = false;
                long atMs = System.currentTimeMillis();
                if (error != null) {
                    System.out.println(number + " refused " + error.toString().replace('\n', ' '));
                } else {
                    System.out.println(number + " committed " + atMs + " " + (atMs - nowMs) + offsets.entrySet().stream()
                        .map(each -> " " + each.getKey().partition() + ":" + each.getValue().offset())
                        .collect(Collectors.joining()));
                }
            });
        }
    }

    public static void main(String[] words) {
        for (int number = 0; number < words.length - 5; number++) {
            int mine = number;
            new Thread(() -> consume(words, mine)).start();
        }
    }
}
