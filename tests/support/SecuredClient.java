import java.io.BufferedReader;
import java.io.FileReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/**
 * Commits with Kafka's own client and says what came of it. Each line of its input is a file of properties, with which
 * a consumer is made and commits, or "again" for another commit of the same consumer.
 */
public class SecuredClient {
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        KafkaConsumer<byte[], byte[]> consumer = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                if (!line.equals("again")) {
                    if (consumer != null) consumer.close();
                    consumer = null;
                    consumer = new KafkaConsumer<>(properties(line));
                }
                consumer.commitSync(Map.of(PARTITION, new OffsetAndMetadata(7)));
                System.out.println("OUTCOME committed");
            } catch (Throwable error) {
                System.out.println("OUTCOME " + error.getClass().getSimpleName() + ": " + error.getMessage());
            }
        }
        if (consumer != null) consumer.close();
    }

    private static Properties properties(String file) throws Exception {
        Properties properties = new Properties();
        try (FileReader reader = new FileReader(file)) {
            properties.load(reader);
        }
        String decoder = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
        properties.put("key.deserializer", decoder);
        properties.put("value.deserializer", decoder);
        properties.put("enable.auto.commit", "false");
        properties.put("default.api.timeout.ms", "20000");
        return properties;
    }
}
