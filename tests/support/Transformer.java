import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/**
 * Consumes, produces and commits in transactions with Kafka's own library; see transformers.py, which has the same with
 * librdkafka. Prints "committed N" after each transaction, "wrong TEXT" when the committed offsets are not those of its
 * model, and "done FIELD=N ..." at the end. A line with a number on the standard input says how many records the input
 * has, in all.
 */
public class Transformer {
    static final int BATCH = 500;
    static final double CHECKED = 0.5; // see transformers.py
    static volatile long records = Long.MAX_VALUE;

    final String bootstrap, name, input, output;
    final Random chance;
    final KafkaConsumer<String, String> consumer;
    final Map<String, Integer> counts = new TreeMap<>();
    KafkaProducer<String, String> producer;
    Map<TopicPartition, Long> known;
    int assignments;

    Transformer(String[] words) {
        bootstrap = words[0];
        name = words[2];
        input = words[3];
        output = words[4];
        chance = new Random(Long.parseLong(words[5]));
        Map<String, Object> reads = common();
        reads.put("group.id", words[1]);
        reads.put("enable.auto.commit", "false");
        reads.put("auto.offset.reset", "earliest");
        reads.put("isolation.level", "read_committed");
        reads.put("max.poll.records", BATCH);
        reads.put("group.protocol", words[6]);
        consumer = new KafkaConsumer<>(reads, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(input), new ConsumerRebalanceListener() {
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) { known = null; assignments++; }
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) { known = null; assignments++; }
            public void onPartitionsLost(Collection<TopicPartition> partitions) { known = null; assignments++; }
        });
        producer = newProducer(60_000);
    }

    Map<String, Object> common() {
        Map<String, Object> found = new HashMap<>();
        found.put("bootstrap.servers", bootstrap);
        found.put("reconnect.backoff.ms", "20");
        found.put("reconnect.backoff.max.ms", "200");
        return found;
    }

    KafkaProducer<String, String> newProducer(int timeoutMs) {
        Map<String, Object> writes = common();
        writes.put("transactional.id", name);
        writes.put("transaction.timeout.ms", timeoutMs);
        while (true) {
            KafkaProducer<String, String> made =
                new KafkaProducer<>(writes, new StringSerializer(), new StringSerializer());
            try {
                made.initTransactions();
                return made;
            } catch (KafkaException error) {
                count("errors");
                made.close(Duration.ZERO);
            }
        }
    }

    void count(String what) {
        counts.merge(what, 1, Integer::sum);
    }

    Map<TopicPartition, Long> committed(Set<TopicPartition> partitions) {
        while (true) {
            try {
                Map<TopicPartition, Long> found = new HashMap<>();
                consumer.committed(partitions).forEach((each, offset) -> found.put(each, offset == null ? 0 : offset.offset()));
                for (TopicPartition each : partitions) found.putIfAbsent(each, 0L);
                return found;
            } catch (org.apache.kafka.common.errors.TimeoutException error) {
                count("errors");
            }
        }
    }

    void run() {
        while (true) {
            ConsumerRecords<String, String> messages = consumer.poll(Duration.ofMillis(300));
            if (messages.isEmpty()) {
                Set<TopicPartition> all = new HashSet<>();
                consumer.partitionsFor(input).forEach(each -> all.add(new TopicPartition(input, each.partition())));
                if (records != Long.MAX_VALUE && committed(all).values().stream().mapToLong(each -> each).sum() >= records)
                    break;
                continue;
            }
            if (known == null) known = committed(consumer.assignment());
            transaction(messages);
        }
        consumer.close();
        StringBuilder line = new StringBuilder("done");
        counts.forEach((what, number) -> line.append(' ').append(what).append('=').append(number));
        System.out.println(line);
        System.exit(0);
    }

    void transaction(ConsumerRecords<String, String> messages) {
        Map<TopicPartition, Long> before = known, after = new HashMap<>(known);
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (ConsumerRecord<String, String> each : messages) {
            TopicPartition partition = new TopicPartition(input, each.partition());
            offsets.put(partition, new OffsetAndMetadata(each.offset() + 1));
            after.put(partition, each.offset() + 1);
        }
        double drawn = chance.nextDouble();
        String end = drawn < 0.2 ? "aborted" : drawn < 0.23 ? "timed_out" : drawn < 0.26 ? "fenced" : "committed";
        boolean mayHaveCommitted = false;
        try {
            if (end.equals("timed_out")) {
                producer.close(Duration.ZERO);
                producer = newProducer(1_500);
            }
            producer.beginTransaction();
            for (ConsumerRecord<String, String> each : messages) producer.send(new ProducerRecord<>(output, each.value()));
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            switch (end) {
                case "aborted":
                    producer.abortTransaction();
                    break;
                case "committed":
                    mayHaveCommitted = true;
                    producer.commitTransaction();
                    before = after;
                    break;
                default: // the transaction is over before its producer ends it
                    KafkaProducer<String, String> next = null;
                    if (end.equals("fenced")) next = newProducer(60_000);
                    else committed(offsets.keySet());
                    boolean refused = false;
                    try {
                        producer.commitTransaction();
                    } catch (KafkaException error) {
                        refused = true;
                    }
                    if (!refused) System.out.println("wrong a transaction that was " + end + " was committed");
                    producer.close(Duration.ZERO);
                    producer = next == null ? newProducer(60_000) : next;
            }
            count(end);
            if (chance.nextDouble() < CHECKED) check(end, before, before);
            else known = before;
        } catch (KafkaException | IllegalStateException error) {
            count("errors");
            System.out.println("error " + end + " " + String.valueOf(error).replace('\n', ' '));
            producer.close(Duration.ZERO);
            producer = newProducer(60_000);
            check("after an error", before, mayHaveCommitted ? after : before);
        }
        known.forEach((partition, offset) -> {
            if (consumer.assignment().contains(partition)) consumer.seek(partition, offset);
        });
        System.out.println("committed " + counts.getOrDefault("committed", 0));
    }

    /** What is committed is one of these two. */
    void check(String end, Map<TopicPartition, Long> one, Map<TopicPartition, Long> other) {
        int then = assignments;
        Map<TopicPartition, Long> found = committed(consumer.assignment());
        if (then == assignments) {
            count("checked");
            if (!found.equals(one) && !found.equals(other))
                System.out.println("wrong " + end + ": " + found + " and not " + one + " or " + other);
        }
        known = found;
    }

    public static void main(String[] words) throws Exception {
        Thread lines = new Thread(() -> {
            try {
                String line = new BufferedReader(new InputStreamReader(System.in)).readLine();
                if (line != null) records = Long.parseLong(line.trim());
                else System.exit(1);
            } catch (Exception error) {
                System.exit(1);
            }
        });
        lines.setDaemon(true);
        lines.start();
        new Transformer(words).run();
    }
}
