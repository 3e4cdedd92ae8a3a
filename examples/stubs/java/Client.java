import com.lf.a2a.v1.A2AServiceGrpc;
import com.lf.a2a.v1.Message;
import com.lf.a2a.v1.Part;
import com.lf.a2a.v1.Role;
import com.lf.a2a.v1.SendMessageRequest;
import io.grpc.ManagedChannelBuilder;
import java.util.List;
import java.util.UUID;

/** Sends a message to an agent: {@code java Client 127.0.0.1:50051 hello there}. */
public final class Client {
    public static void main(String[] words) {
        var channel = ManagedChannelBuilder.forTarget(words[0]).usePlaintext().build();
        var text = Part.newBuilder().setText(String.join(" ", List.of(words).subList(1, words.length)));
        var message = Message.newBuilder().setMessageId(UUID.randomUUID().toString()).setRole(Role.ROLE_USER).addParts(text);
        var request = SendMessageRequest.newBuilder().setMessage(message).build();
        A2AServiceGrpc.newBlockingStub(channel).sendStreamingMessage(request).forEachRemaining(event -> {
            var told = new StringBuilder(event.getPayloadCase().name());
            event.getArtifactUpdate().getArtifact().getPartsList().forEach(part -> told.append(' ').append(part.getText()));
            System.out.println(told);
        });
        channel.shutdownNow();
    }
}
