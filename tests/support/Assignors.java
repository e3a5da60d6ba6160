import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.*;
import org.apache.kafka.coordinator.group.assignor.*;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupTargetAssignmentMemberValue;
import org.apache.kafka.coordinator.group.modern.*;

/** Kafka's assignors as a process: a line of JSON is a group, a line of JSON its assignment. See java_assignors.py. */
public class Assignors {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Map<String, ConsumerGroupPartitionAssignor> ASSIGNORS = Map.of("range", new RangeAssignor(), "uniform", new UniformAssignor());

    static Uuid uuid(String hex) {
        ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
        return new Uuid(bytes.getLong(), bytes.getLong());
    }

    static String hex(Uuid id) {
        return HexFormat.of().formatHex(ByteBuffer.allocate(16).putLong(id.getMostSignificantBits()).putLong(id.getLeastSignificantBits()).array());
    }

    /** As a broker has it: read from a record. */
    static Assignment assignment(JsonNode topics) {
        List<ConsumerGroupTargetAssignmentMemberValue.TopicPartition> found = new ArrayList<>();
        for (JsonNode topic : topics) {
            List<Integer> partitions = new ArrayList<>();
            topic.get(1).forEach(each -> partitions.add(each.asInt()));
            found.add(new ConsumerGroupTargetAssignmentMemberValue.TopicPartition().setTopicId(uuid(topic.get(0).asText())).setPartitions(partitions));
        }
        return Assignment.fromRecord(new ConsumerGroupTargetAssignmentMemberValue().setTopicPartitions(found));
    }

    static ObjectNode assign(JsonNode group) {
        Map<Uuid, Integer> counts = new HashMap<>();
        for (JsonNode topic : group.get("topics")) counts.put(uuid(topic.get(0).asText()), topic.get(1).asInt());
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> inverted = new HashMap<>();
        for (JsonNode member : group.get("members")) {
            String id = member.get("id").asText();
            Set<Uuid> subscribed = new LinkedHashSet<>();
            member.get("topics").forEach(each -> subscribed.add(uuid(each.asText())));
            Assignment before = assignment(member.get("assignment"));
            before.partitions().forEach((topic, partitions) -> partitions.forEach(partition -> inverted.computeIfAbsent(topic, __ -> new HashMap<>()).put(partition, id)));
            members.put(id, new MemberSubscriptionAndAssignmentImpl(Optional.empty(), Optional.ofNullable(member.get("instance").textValue()), subscribed, before));
        }
        GroupSpec spec = new GroupSpecImpl(Collections.unmodifiableMap(members), group.get("homogeneous").asBoolean() ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS, inverted);
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            public int numPartitions(Uuid topic) { return counts.getOrDefault(topic, -1); }
            public Set<String> racksForPartition(Uuid topic, int partition) { return Set.of(); }
        };
        ObjectNode answer = JSON.createObjectNode();
        try {
            Map<String, MemberAssignment> found = ASSIGNORS.get(group.get("assignor").asText()).assign(spec, describer).members();
            for (String id : members.keySet()) {
                ArrayNode topics = answer.putArray(id);
                if (found.containsKey(id)) found.get(id).partitions().forEach((topic, partitions) -> {
                    ArrayNode pair = topics.addArray().add(hex(topic));
                    ArrayNode numbers = pair.addArray();
                    partitions.forEach(numbers::add);
                });
            }
        } catch (PartitionAssignorException error) {
            answer.put("", error.getMessage());
        }
        return answer;
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        for (String line; (line = in.readLine()) != null; out.flush()) out.println(JSON.writeValueAsString(assign(JSON.readTree(line))));
    }
}
