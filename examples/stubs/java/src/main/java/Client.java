import com.google.protobuf.util.JsonFormat;
import com.lf.a2a.v1.A2AServiceGrpc;
import com.lf.a2a.v1.Artifact;
import com.lf.a2a.v1.Message;
import com.lf.a2a.v1.Part;
import com.lf.a2a.v1.Role;
import com.lf.a2a.v1.SendMessageRequest;
import com.lf.a2a.v1.SendMessageResponse;
import io.grpc.ManagedChannelBuilder;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;

/** Sends a message to an agent over gRPC, then over REST: {@code 127.0.0.1:50051 http://127.0.0.1:8080 hello there}. */
public final class Client {
    public static void main(String[] words) throws Exception {
        var text = String.join(" ", Arrays.copyOfRange(words, 2, words.length));
        streamOverGrpc(words[0], request("m-grpc", text));
        sendOverRest(words[1], request("m-rest", text));
    }

    private static SendMessageRequest request(String id, String text) {
        var part = Part.newBuilder().setText(text);
        var message = Message.newBuilder().setMessageId(id).setRole(Role.ROLE_USER).addParts(part);
        return SendMessageRequest.newBuilder().setMessage(message).build();
    }

    private static void streamOverGrpc(String address, SendMessageRequest request) {
        var channel = ManagedChannelBuilder.forTarget(address).usePlaintext().build();
        try {
            A2AServiceGrpc.newBlockingStub(channel).sendStreamingMessage(request).forEachRemaining(event ->
                    System.out.println(event.getPayloadCase() + texts(List.of(event.getArtifactUpdate().getArtifact()))));
        } finally {
            channel.shutdownNow();
        }
    }

    /** The same message as JSON, by JsonFormat. A2A-Version chooses the form of the answer. */
    private static void sendOverRest(String server, SendMessageRequest request) throws IOException, InterruptedException {
        var call = HttpRequest.newBuilder(URI.create(server + "/message:send"))
                .header("Content-Type", "application/json")
                .header("A2A-Version", "1.0")
                .POST(HttpRequest.BodyPublishers.ofString(JsonFormat.printer().print(request)))
                .build();
        var response = HttpClient.newHttpClient().send(call, BodyHandlers.ofString());
        if (response.statusCode() != 200) {
            throw new IOException(response.statusCode() + ": " + response.body());
        }
        var answer = SendMessageResponse.newBuilder();
        JsonFormat.parser().merge(response.body(), answer);
        System.out.println(answer.getTask().getStatus().getState() + texts(answer.getTask().getArtifactsList()));
    }

    /** The texts of artifacts, each after a space. */
    private static String texts(List<Artifact> artifacts) {
        return artifacts.stream().flatMap(artifact -> artifact.getPartsList().stream())
                .map(part -> " " + part.getText()).collect(Collectors.joining());
    }
}
