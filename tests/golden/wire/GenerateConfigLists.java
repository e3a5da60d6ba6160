import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.message.ListConfigResourcesResponseData.ConfigResource;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.requests.*;

/** Prints requests and answers of ListConfigResources as Kafka writes them, each with its header and without its length.
 *
 * With the jars of org.apache.kafka:kafka_2.13:4.3.1 in libs: java -cp "libs/*" GenerateConfigLists.java
 */
public class GenerateConfigLists {
    static final ApiKeys KEY = ApiKeys.LIST_CONFIG_RESOURCES;

    static void put(String name, ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        System.out.println(name + " " + HexFormat.of().formatHex(bytes));
    }

    static void request(String name, int version, Byte... types) {
        ListConfigResourcesRequestData data = new ListConfigResourcesRequestData().setResourceTypes(List.of(types));
        put("request-v" + version + "-" + name, RequestUtils.serialize(
            new RequestHeader(KEY, (short) version, "client-ä", 7).data(), KEY.requestHeaderVersion((short) version), data, (short) version));
    }

    static ConfigResource resource(int type, String name) { return new ConfigResource().setResourceType((byte) type).setResourceName(name); }

    static void answer(String name, int version, int code, ConfigResource... resources) {
        ListConfigResourcesResponseData data = new ListConfigResourcesResponseData().setErrorCode((short) code).setConfigResources(List.of(resources));
        put("answer-v" + version + "-" + name, RequestUtils.serialize(
            new ResponseHeader(7, KEY.responseHeaderVersion((short) version)).data(), KEY.responseHeaderVersion((short) version), data, (short) version));
    }

    public static void main(String[] arguments) {
        request("metrics", 0);
        request("all", 1);
        request("some", 1, (byte) 32, (byte) 2, (byte) -1);
        answer("empty", 0, 0);
        answer("listed", 0, 0, resource(16, "metrics-ä"), resource(16, ""));
        answer("refused", 0, 31);
        answer("empty", 1, 0);
        answer("listed", 1, 0, resource(32, "group-ä"), resource(2, "t"), resource(-1, "x".repeat(200)));
        answer("refused", 1, 35);
    }
}
