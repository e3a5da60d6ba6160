import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.*;

/**
 * A consumer with Kafka's own library; see java_consumers.py.
 *
 * <p>BOOTSTRAP TOPIC GROUP PROTOCOL [INSTANCE]. A topic that begins with ^ is a regular expression for the server. It commits after
 * every poll that brought records, and once for each partition that it is given.
 */
public class Consuming {
    static void say(String what, Collection<TopicPartition> partitions) {
        long now = System.currentTimeMillis();
        for (TopicPartition each : partitions)
            System.out.println(what + " " + now + " " + each.topic() + " " + each.partition());
    }

    public static void main(String[] words) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", words[0],
            "group.id", words[2],
            "group.protocol", words[3],
            "metadata.max.age.ms", "1000",
            "auto.offset.reset", "earliest",
            "enable.auto.commit", "false"));
        if (words.length > 4) settings.put("group.instance.id", words[4]);
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
        Set<TopicPartition> uncommitted = new HashSet<>();
        var listener = new ConsumerRebalanceListener() {
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                say("taken", partitions);
                uncommitted.removeAll(partitions);
            }

            public void onPartitionsLost(Collection<TopicPartition> partitions) {
                say("lost", partitions);
                uncommitted.removeAll(partitions);
            }

            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                say("given", partitions);
                uncommitted.addAll(partitions);
            }
        };
        if (words[1].startsWith("^")) consumer.subscribe(new SubscriptionPattern(words[1]), listener);
        else consumer.subscribe(List.of(words[1]), listener);
        try {
            while (true) {
                var records = consumer.poll(Duration.ofMillis(100));
                for (var each : records) System.out.println("record " + each.value());
                if (records.isEmpty() && uncommitted.isEmpty()) continue;
                var offsets = new HashMap<TopicPartition, OffsetAndMetadata>();
                for (TopicPartition each : consumer.assignment())
                    offsets.put(each, new OffsetAndMetadata(consumer.position(each)));
                try {
                    consumer.commitSync(offsets);
                    uncommitted.clear();
                } catch (CommitFailedException refused) {
                    System.out.println("refused " + refused.getMessage().replace('\n', ' '));
                }
            }
        } catch (WakeupException stopped) {
            consumer.close();
        }
    }
}
