import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.*;
import com.google.re2j.*;
import java.io.*;
import java.nio.charset.StandardCharsets;

/** RE2/J as Kafka's group coordinator uses it: a line of JSON is an expression and names, a line of JSON is what matches. See java_lines.py. */
public class Regexes {
    static final ObjectMapper JSON = new ObjectMapper();

    static JsonNode answer(JsonNode asked) {
        try {
            Pattern pattern = Pattern.compile(asked.get(0).asText());
            ArrayNode matched = JSON.createArrayNode();
            for (JsonNode name : asked.get(1)) if (pattern.matcher(name.asText()).matches()) matched.add(name);
            return matched;
        } catch (PatternSyntaxException error) {
            return TextNode.valueOf(error.getDescription());
        }
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        for (String line; (line = in.readLine()) != null; out.flush()) out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
    }
}
