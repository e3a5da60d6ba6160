import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.message.AlterConfigsRequestData.*;
import org.apache.kafka.common.message.AlterConfigsResponseData.AlterConfigsResourceResponse;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.requests.*;

/** Prints requests and answers of AlterConfigs as Kafka writes them, each with its header and without its length.
 *
 * With the jars of org.apache.kafka:kafka_2.13:4.3.1 in libs: java -cp "libs/*" GenerateAlterConfigs.java
 */
public class GenerateAlterConfigs {
    static final ApiKeys KEY = ApiKeys.ALTER_CONFIGS;

    static void put(String name, ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        System.out.println(name + " " + HexFormat.of().formatHex(bytes));
    }

    static void request(String name, int version, boolean validateOnly, AlterConfigsResource... resources) {
        AlterConfigsResourceCollection all = new AlterConfigsResourceCollection();
        for (AlterConfigsResource each : resources) all.add(each);
        AlterConfigsRequestData data = new AlterConfigsRequestData().setResources(all).setValidateOnly(validateOnly);
        put("request-v" + version + "-" + name, RequestUtils.serialize(
            new RequestHeader(KEY, (short) version, "client-ä", 7).data(), KEY.requestHeaderVersion((short) version), data, (short) version));
    }

    static AlterConfigsResource resource(int type, String name, String... namesAndValues) {
        AlterableConfigCollection configs = new AlterableConfigCollection();
        for (int i = 0; i < namesAndValues.length; i += 2)
            configs.add(new AlterableConfig().setName(namesAndValues[i]).setValue(namesAndValues[i + 1]));
        return new AlterConfigsResource().setResourceType((byte) type).setResourceName(name).setConfigs(configs);
    }

    static void answer(String name, int version, AlterConfigsResourceResponse... responses) {
        AlterConfigsResponseData data = new AlterConfigsResponseData().setResponses(List.of(responses));
        put("answer-v" + version + "-" + name, RequestUtils.serialize(
            new ResponseHeader(7, KEY.responseHeaderVersion((short) version)).data(), KEY.responseHeaderVersion((short) version), data, (short) version));
    }

    static AlterConfigsResourceResponse result(int type, String name, int code, String message) {
        return new AlterConfigsResourceResponse().setResourceType((byte) type).setResourceName(name).setErrorCode((short) code).setErrorMessage(message);
    }

    public static void main(String[] arguments) {
        for (int version = KEY.oldestVersion(); version <= KEY.latestVersion(); version++) {
            request("nothing", version, false);
            request("no-configs", version, true, resource(32, "group-ä"));
            request("configs", version, false,
                resource(32, "group-ä", "consumer.session.timeout.ms", "50000", "ä", null, "empty", ""),
                resource(2, "t", "retention.ms", "x".repeat(200)), resource(-1, ""));
            answer("nothing", version);
            answer("altered", version, result(32, "group-ä", 0, null));
            answer("refused", version, result(32, "group-ä", 40, "nö"), result(-1, "", 42, ""), result(2, "t".repeat(200), 29, null));
        }
    }
}
