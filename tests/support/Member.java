import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.*;

/**
 * A member of a group, or a producer of numbered records, with Kafka's own library; see group_members.py.
 *
 * <p>produce BOOTSTRAP TOPIC FIRST COUNT, or consume BOOTSTRAP TOPIC GROUP ASSIGNOR SESSION_MS POLL_MS [INSTANCE]. Lines of the
 * standard input: "commit OFFSET" commits it for all that it has, "pause MS" does nothing for so long and then commits.
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

    static final BlockingQueue<String> ASKED = new LinkedBlockingQueue<>();

    static void listen() {
        Thread reader = new Thread(() -> new BufferedReader(new InputStreamReader(System.in)).lines().forEach(ASKED::add));
        reader.setDaemon(true);
        reader.start();
    }

    static void say(String what, Collection<TopicPartition> partitions) {
        long now = System.currentTimeMillis();
        for (TopicPartition each : partitions)
            System.out.println(what + " " + now + " " + each.topic() + " " + each.partition());
    }

    static void answer(KafkaConsumer<String, String> consumer, String asked) throws InterruptedException {
        long number = Long.parseLong(asked.split(" ")[1]);
        var offsets = new HashMap<TopicPartition, OffsetAndMetadata>();
        for (TopicPartition each : consumer.assignment())
            offsets.put(each, new OffsetAndMetadata(asked.startsWith("commit") ? number : 0));
        if (asked.startsWith("pause")) {
            System.out.println("paused " + System.currentTimeMillis());
            Thread.sleep(number);
        }
        try {
            consumer.commitSync(offsets);
            System.out.println("committed");
        } catch (WakeupException stopped) {
            throw stopped;
        } catch (KafkaException refused) {
            System.out.println("refused " + refused.getClass().getSimpleName());
        }
    }

    static void consume(String[] words) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", words[1],
            "group.id", words[3],
            "max.poll.interval.ms", words[6],
            "metadata.max.age.ms", "1000",
            "auto.offset.reset", "earliest",
            "enable.auto.commit", "false"));
        if (words[4].equals("consumer"))
            settings.put("group.protocol", "consumer");
        else
            settings.putAll(Map.of(
                "partition.assignment.strategy", List.of(ASSIGNORS.get(words[4])),
                "session.timeout.ms", words[5],
                "heartbeat.interval.ms", "500"));
        if (words.length > 7) settings.put("group.instance.id", words[7]);
        listen();
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
        var listener = new ConsumerRebalanceListener() {
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                say("taken", partitions);
            }

            public void onPartitionsLost(Collection<TopicPartition> partitions) {
                say("lost", partitions);
            }

            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                System.out.println("assigned " + partitions.size());
                say("given", partitions);
            }
        };
        if (words[2].startsWith("^")) consumer.subscribe(new SubscriptionPattern(words[2]), listener);
        else consumer.subscribe(List.of(words[2]), listener);
        try {
            while (true) {
                String asked = ASKED.poll();
                if (asked != null) answer(consumer, asked);
                var records = consumer.poll(Duration.ofMillis(200));
                for (ConsumerRecord<String, String> each : records) System.out.println("record " + each.value());
                if (records.isEmpty()) continue; // else it takes back what it was asked to commit
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
