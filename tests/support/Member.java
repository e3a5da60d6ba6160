import java.time.Duration;
import java.util.*;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.*;

/**
 * A member of a group, or a producer of numbered records, with Kafka's own library; see group_members.py.
 *
 * <p>produce BOOTSTRAP TOPIC FIRST COUNT, or consume BOOTSTRAP TOPIC GROUP ASSIGNOR SESSION_MS [INSTANCE]
 */
public class Member {
    static final Map<String, Class<?>> ASSIGNORS = Map.of(
        "range", RangeAssignor.class,
        "roundrobin", RoundRobinAssignor.class,
        "sticky", StickyAssignor.class,
        "cooperative-sticky", CooperativeStickyAssignor.class);

    static void produce(String bootstrap, String topic, int first, int count) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "enable.idempotence", "true");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = first; number < first + count; number++)
                sent.add(producer.send(new ProducerRecord<>(topic, Integer.toString(number))));
            for (Future<RecordMetadata> each : sent) each.get();
        }
    }

    static void consume(String[] words) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", words[1],
            "group.id", words[3],
            "partition.assignment.strategy", List.of(ASSIGNORS.get(words[4])),
            "session.timeout.ms", words[5],
            "heartbeat.interval.ms", "500",
            "auto.offset.reset", "earliest",
            "enable.auto.commit", "false"));
        if (words.length > 6) settings.put("group.instance.id", words[6]);
        var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                main.join();
            } catch (InterruptedException error) {
                return; // it is ended the hard way
            }
        }));
        consumer.subscribe(List.of(words[2]), new ConsumerRebalanceListener() {
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}

            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                System.out.println("assigned " + partitions.size());
            }
        });
        try {
            while (true) {
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(200)))
                    System.out.println("record " + each.value());
                try {
                    consumer.commitSync();
                } catch (CommitFailedException | org.apache.kafka.common.errors.RebalanceInProgressException refused) {
                    continue; // the group has rebalanced
                }
            }
        } catch (WakeupException stopped) {
            consumer.close();
        }
    }

    public static void main(String[] words) throws Exception {
        if (words[0].equals("produce")) produce(words[1], words[2], Integer.parseInt(words[3]), Integer.parseInt(words[4]));
        else consume(words);
    }
}
