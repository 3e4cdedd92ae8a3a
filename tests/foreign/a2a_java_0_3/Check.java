import static java.nio.charset.StandardCharsets.UTF_8;

import io.a2a.A2A;
import io.a2a.client.Client;
import io.a2a.client.ClientEvent;
import io.a2a.client.MessageEvent;
import io.a2a.client.TaskEvent;
import io.a2a.client.TaskUpdateEvent;
import io.a2a.client.config.ClientConfig;
import io.a2a.client.transport.grpc.GrpcTransport;
import io.a2a.client.transport.grpc.GrpcTransportConfigBuilder;
import io.a2a.client.transport.jsonrpc.JSONRPCTransport;
import io.a2a.client.transport.jsonrpc.JSONRPCTransportConfigBuilder;
import io.a2a.client.transport.rest.RestTransport;
import io.a2a.client.transport.rest.RestTransportConfigBuilder;
import io.a2a.client.transport.spi.interceptors.ClientCallContext;
import io.a2a.spec.A2AClientException;
import io.a2a.spec.AgentCapabilities;
import io.a2a.spec.AgentCard;
import io.a2a.spec.Artifact;
import io.a2a.spec.ContentTypeNotSupportedError;
import io.a2a.spec.DataPart;
import io.a2a.spec.DeleteTaskPushNotificationConfigParams;
import io.a2a.spec.FilePart;
import io.a2a.spec.FileWithBytes;
import io.a2a.spec.FileWithUri;
import io.a2a.spec.GetTaskPushNotificationConfigParams;
import io.a2a.spec.ListTaskPushNotificationConfigParams;
import io.a2a.spec.Message;
import io.a2a.spec.Part;
import io.a2a.spec.PushNotificationAuthenticationInfo;
import io.a2a.spec.PushNotificationConfig;
import io.a2a.spec.PushNotificationNotSupportedError;
import io.a2a.spec.Task;
import io.a2a.spec.TaskArtifactUpdateEvent;
import io.a2a.spec.TaskIdParams;
import io.a2a.spec.TaskNotCancelableError;
import io.a2a.spec.TaskNotFoundError;
import io.a2a.spec.TaskPushNotificationConfig;
import io.a2a.spec.TaskQueryParams;
import io.a2a.spec.TaskState;
import io.a2a.spec.TaskStatusUpdateEvent;
import io.a2a.spec.TextPart;
import io.a2a.spec.TransportProtocol;
import io.a2a.spec.UnsupportedOperationError;
import io.grpc.ManagedChannelBuilder;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;

/** The Java SDK of A2A 0.3: every operation of its client over JSON-RPC, HTTP+JSON and gRPC. */
final class Check {
    /** Says that files are base64 text over gRPC and HTTP+JSON: this SDK sends and wants nothing else. */
    private static final ClientCallContext CONTEXT =
            new ClientCallContext(Map.of(), Map.of("X-A2A-Extensions", "urn:dragoman:base64-files:v1"));
    private static final String ALL_CHUNKS = chunks(20);
    /** An id of a webhook. Over HTTP+JSON this SDK pads an id of one letter with a space, which makes no URL. */
    private static final String CONFIG = "config";

    /** The SDK's client on one transport, which streams, waits, or polls. */
    private record Caller(TransportProtocol transport, AgentCard card, Client streaming, Client blocking, Client polling) {
        /** The proto of this SDK is older than 0.3.0: it drops types and names of files, and reads no names in JSON. */
        boolean keepsFileNames() {
            return transport == TransportProtocol.JSONRPC;
        }

        Task task(Client client, Message message) throws Exception {
            return ((TaskEvent) only(client, message)).getTask();
        }

        ClientEvent only(Client client, Message message) throws Exception {
            var events = new ArrayList<ClientEvent>();
            client.sendMessage(message, List.of((event, card) -> events.add(event)), null, CONTEXT);
            Checks.equal(1, events.size());
            return events.get(0);
        }

        Task send(String text) throws Exception {
            return task(blocking, message(text, null));
        }

        Task answer(String text, String task) throws Exception {
            return task(blocking, message(text, task));
        }

        Task start(String text) throws Exception {
            return task(polling, message(text, null));
        }

        Task get(String id) throws Exception {
            return blocking.getTask(new TaskQueryParams(id), CONTEXT);
        }

        Task cancel(String id) throws Exception {
            return blocking.cancelTask(new TaskIdParams(id), CONTEXT);
        }

        /** All events of a message, up to the one that ends the stream. */
        List<ClientEvent> stream(Message message) throws Exception {
            var stream = new Stream();
            streaming.sendMessage(message, List.of(stream), stream::fail, CONTEXT);
            return stream.all();
        }

        Stream follow(String id) throws Exception {
            var stream = new Stream();
            streaming.resubscribe(new TaskIdParams(id), List.of(stream), stream::fail, CONTEXT);
            return stream;
        }

        TaskPushNotificationConfig register(String task, String url) throws Exception {
            return blocking.setTaskPushNotificationConfiguration(new TaskPushNotificationConfig(task, webhook(url)), CONTEXT);
        }
    }

    /** The events of a stream as they come. */
    private static final class Stream implements BiConsumer<ClientEvent, AgentCard> {
        private final List<ClientEvent> events = new ArrayList<>();
        private final CompletableFuture<Void> begun = new CompletableFuture<>();
        private final CompletableFuture<List<ClientEvent>> ended = new CompletableFuture<>();

        @Override
        public void accept(ClientEvent event, AgentCard card) {
            events.add(event);
            begun.complete(null);
            if (event instanceof MessageEvent || update(event) instanceof TaskStatusUpdateEvent status && status.isFinal()) {
                ended.complete(events);
            }
        }

        void fail(Throwable error) {
            if (error != null) {  // null: this SDK's word for an end without an error
                begun.completeExceptionally(error);
                ended.completeExceptionally(error);
            }
        }

        void waitUntilBegun() throws Exception {
            begun.get(Checks.LIMIT_SECONDS, TimeUnit.SECONDS);
        }

        List<ClientEvent> all() throws Exception {
            return ended.get(Checks.LIMIT_SECONDS, TimeUnit.SECONDS);
        }
    }

    private static Object update(ClientEvent event) {
        return event instanceof TaskUpdateEvent change ? change.getUpdateEvent() : null;
    }

    private static Message message(String text, String task) {
        return builder(new TextPart(text)).taskId(task).build();
    }

    private static Message.Builder builder(Part<?>... parts) {
        return new Message.Builder().messageId("m-1").role(Message.Role.USER).parts(parts);
    }

    private static PushNotificationConfig webhook(String url) {
        var secret = new PushNotificationAuthenticationInfo(List.of("Bearer"), "s3cret");
        return new PushNotificationConfig.Builder().id(CONFIG).url(url).token("t0ken").authenticationInfo(secret).build();
    }

    private static String text(List<Part<?>> parts) {
        var text = new StringBuilder();
        parts.forEach(part -> text.append(((TextPart) part).getText()));
        return text.toString();
    }

    private static String text(Task task) {
        var text = new StringBuilder();
        task.getArtifacts().forEach(artifact -> text.append(text(artifact.parts())));
        return text.toString();
    }

    /** The artifacts of a stream's events, one for each chunk. */
    private static List<Artifact> chunksOf(List<ClientEvent> events) {
        return events.stream().map(Check::update).filter(TaskArtifactUpdateEvent.class::isInstance)
                .map(update -> ((TaskArtifactUpdateEvent) update).getArtifact()).toList();
    }

    private static String chunks(int last) {
        var text = new StringBuilder();
        for (var number = 1; number <= last; number++) {
            text.append("chunk-").append(number).append(' ');
        }
        return text.toString();
    }

    private static TaskState lastState(List<ClientEvent> events) {
        return ((TaskStatusUpdateEvent) update(events.get(events.size() - 1))).getStatus().state();
    }

    /**
     * Makes a call that must fail. Over HTTP+JSON this SDK knows errors by the class names that its own servers send:
     * any other answer is an A2AClientException with the message.
     */
    private static void refused(Caller caller, Class<? extends Throwable> kind, Checks.Call call) throws Exception {
        var chain = Checks.failure(call);
        var known = caller.transport != TransportProtocol.HTTP_JSON;
        Checks.yes(chain.stream().anyMatch(error -> known ? kind.isInstance(error)
                : error instanceof A2AClientException), chain);
    }

    private static void sends(Checks<Caller> checks) {
        checks.add("a send that waits gives the finished task", "send", caller -> {
            var task = caller.send("echo hello");
            Checks.equal(TaskState.COMPLETED, task.getStatus().state());
            Checks.equal("hello", text(task));
            Checks.equal("echo hello", text(task.getHistory().get(0).getParts()));
        });
        checks.add("a send that polls gives a task to look at", "non-blocking send, get", caller -> {
            var task = caller.start("sleep 0.5");
            Checks.yes(List.of(TaskState.SUBMITTED, TaskState.WORKING).contains(task.getStatus().state()), task.getStatus());
            while (caller.get(task.getId()).getStatus().state() != TaskState.COMPLETED) {
                Thread.onSpinWait();
            }
        });
        checks.add("failing and rejecting are states, not errors", "send", caller -> {
            Checks.equal(TaskState.FAILED, caller.send("fail").getStatus().state());
            Checks.equal(TaskState.REJECTED, caller.send("reject").getStatus().state());
        });
        checks.add("a direct reply is a message", "send, stream", caller -> {
            var reply = (MessageEvent) caller.only(caller.blocking, message("reply hi", null));
            Checks.equal("hi", text(reply.getMessage().getParts()));
            var events = caller.stream(message("reply hi", null));
            Checks.equal("hi", text(((MessageEvent) events.get(0)).getMessage().getParts()));
        });
        checks.add("a follow-up needs only the task every time", "follow-up", caller -> {
            for (var question : List.of("ask", "auth")) {
                var task = caller.send(question);
                var wanted = question.equals("ask") ? TaskState.INPUT_REQUIRED : TaskState.AUTH_REQUIRED;
                Checks.equal(wanted, task.getStatus().state());
                var answered = caller.answer("blue", task.getId());
                Checks.equal(task.getId(), answered.getId());
                Checks.equal("you said: blue", text(answered));
            }
        });
        checks.add("history is cut to the requested length", "get", caller -> {
            var task = caller.send("ask");
            caller.answer("blue", task.getId());
            // Over HTTP+JSON this SDK pads numbers below 10 with a space, which makes no URL.
            var asked = caller.transport == TransportProtocol.HTTP_JSON ? 10 : 1;
            var history = caller.blocking.getTask(new TaskQueryParams(task.getId(), asked), CONTEXT).getHistory();
            Checks.equal(Math.min(asked, 3), history.size());
        });
        checks.add("files and data go there and back", "send, get", caller -> {
            var bytes = new byte[] {0, 1, -1, 'x'};
            var file = new FileWithBytes("application/octet-stream", "x.bin", Base64.getEncoder().encodeToString(bytes));
            var link = new FileWithUri("text/csv", "x.csv", "http://127.0.0.1:1/x.csv");
            var data = Map.<String, Object>of("words", List.of("a", "b"), "nested", Map.of("yes", true));
            var sent = builder(new FilePart(file), new FilePart(link), new DataPart(data)).build();
            var task = caller.task(caller.blocking, sent);
            for (var shown : List.of(task, caller.get(task.getId()))) {
                var parts = shown.getArtifacts().get(0).parts();
                var found = (FileWithBytes) ((FilePart) parts.get(0)).getFile();
                Checks.equal(file.bytes(), found.bytes());
                Checks.equal(caller.keepsFileNames() ? file.mimeType() : "", found.mimeType());
                Checks.equal(link.uri(), ((FileWithUri) ((FilePart) parts.get(1)).getFile()).uri());
                Checks.equal(data, ((DataPart) parts.get(2)).getData());
            }
        });
        checks.add("a file of the agent can be read", "send", caller -> {
            if (caller.transport == TransportProtocol.HTTP_JSON) {
                var error = Checks.failure(() -> caller.send("file")).get(0);
                Checks.yes(error.getMessage().contains("Cannot find field: name"), error);
                return;
            }
            var part = (FilePart) caller.send("file").getArtifacts().get(0).parts().get(0);
            var file = (FileWithBytes) part.getFile();
            Checks.equal("hello from the playground\n", new String(Base64.getDecoder().decode(file.bytes()), UTF_8));
            Checks.equal(caller.keepsFileNames() ? "hello.txt" : null, file.name());
        });
    }

    private static void streams(Checks<Caller> checks) {
        checks.add("a stream shows every chunk in order", "stream", caller -> {
            var events = caller.stream(message("stream 5 5", null));
            var task = ((TaskEvent) events.get(0)).getTask();
            var chunks = chunksOf(events);
            Checks.equal(5, chunks.size());
            Checks.equal(chunks(5), chunks.stream().map(chunk -> text(chunk.parts())).reduce("", String::concat));
            Checks.equal(TaskState.COMPLETED, lastState(events));
            Checks.equal(chunks(5), text(caller.get(task.getId())));
        });
        checks.add("a streamed question ends the stream", "stream", caller ->
                Checks.equal(TaskState.INPUT_REQUIRED, lastState(caller.stream(message("ask", null)))));
        checks.add("a subscription shows the rest", "subscribe", caller -> {
            var task = caller.start("stream 20 40");
            var events = caller.follow(task.getId()).all();
            var whole = ((TaskUpdateEvent) events.get(events.size() - 1)).getTask();
            Checks.equal(ALL_CHUNKS, text(whole));
        });
        checks.add("a task is canceled and its followers hear of it", "cancel, subscribe", caller -> {
            var task = caller.start("sleep 30");
            var following = caller.follow(task.getId());
            following.waitUntilBegun();
            Checks.equal(TaskState.CANCELED, caller.cancel(task.getId()).getStatus().state());
            Checks.equal(TaskState.CANCELED, lastState(following.all()));
            refused(caller, TaskNotCancelableError.class, () -> caller.cancel(task.getId()));
        });
    }

    private static void errors(Checks<Caller> checks, String operation) {
        checks.add("the card declares what the agent can", "card", caller -> {
            Checks.equal("Playground", caller.card.name());
            Checks.yes(caller.card.capabilities().streaming(), caller.card);
            Checks.equal("Playground", caller.blocking.getAgentCard(CONTEXT).name());
        });
        checks.add("an unknown task is not found", operation, caller -> {
            refused(caller, TaskNotFoundError.class, () -> caller.get("no-such-task"));
            refused(caller, TaskNotFoundError.class, () -> caller.cancel("no-such-task"));
            refused(caller, TaskNotFoundError.class, () -> caller.answer("hello", "no-such-task"));
        });
        checks.add("a type that the agent does not take is refused", operation, caller -> {
            var odd = new FilePart(new FileWithBytes("application/x-unsupported", null, "AAAA"));
            if (!caller.keepsFileNames()) {
                Checks.equal(TaskState.COMPLETED, caller.task(caller.blocking, builder(odd).build()).getStatus().state());
                return;
            }
            refused(caller, ContentTypeNotSupportedError.class, () -> caller.task(caller.blocking, builder(odd).build()));
        });
    }

    private static void webhooks(Checks<Caller> checks) {
        checks.add("a webhook is kept, replaced, listed and deleted", "push configs", caller -> {
            var task = caller.send("ask").getId();
            for (var url : List.of("https://one.example/hook", "https://two.example/hook")) {
                var get = new GetTaskPushNotificationConfigParams(task, CONFIG);
                for (var shown : List.of(caller.register(task, url),
                        caller.blocking.getTaskPushNotificationConfiguration(get, CONTEXT))) {
                    Checks.equal(List.of(task, url), List.of(shown.taskId(), shown.pushNotificationConfig().url()));
                    Checks.equal(List.of("Bearer"), shown.pushNotificationConfig().authentication().schemes());
                }
            }
            var list = new ListTaskPushNotificationConfigParams(task);
            Checks.equal(1, caller.blocking.listTaskPushNotificationConfigurations(list, CONTEXT).size());
            var delete = new DeleteTaskPushNotificationConfigParams(task, CONFIG);
            caller.blocking.deleteTaskPushNotificationConfigurations(delete, CONTEXT);
            Checks.equal(0, caller.blocking.listTaskPushNotificationConfigurations(list, CONTEXT).size());
        });
        checks.add("a webhook that cannot be is refused", "push configs", caller -> {
            var task = caller.send("ask").getId();
            refused(caller, Throwable.class, () -> caller.register("no-such-task", "https://one.example/hook"));
            refused(caller, Throwable.class, () -> caller.register(task, "http://169.254.169.254/latest"));
        });
        checks.add("a receiver is told what comes after it was registered", "push", caller -> {
            try (var hook = new Checks.Hook()) {
                var task = caller.send("ask");
                caller.register(task.getId(), hook.url());
                caller.answer("blue", task.getId());
                for (var delivery : hook.until(body -> body.contains("\"completed\""))) {
                    Checks.equal("Bearer s3cret", delivery.headers().get("authorization"));
                    Checks.equal("t0ken", delivery.headers().get("x-a2a-notification-token"));
                    var read = io.a2a.util.Utils.unmarshalFrom(delivery.body(), Task.TYPE_REFERENCE);
                    Checks.equal(task.getId(), read.getId());
                }
            }
        });
    }

    /** Not over HTTP+JSON: there this SDK loses the error of a stream once in some twenty times. */
    private static void streamErrors(Checks<Caller> checks) {
        checks.add("a stream that cannot begin says why", "errors", caller -> {
            refused(caller, TaskNotFoundError.class, () -> caller.stream(message("hello", "no-such-task")));
            refused(caller, TaskNotFoundError.class, () -> caller.follow("no-such-task").all());
        });
    }

    /** On a server whose cards declare no capability; the caller's own card promises all, since the SDK looks at it. */
    private static void refusals(Checks<Caller> checks, AgentCard served, TransportProtocol transport) {
        var operation = transport == TransportProtocol.HTTP_JSON ? "" : "refusals";  // there errors have no types
        checks.add("the card declares nothing", operation, caller -> {
            Checks.equal("Bare", served.name());
            Checks.yes(!served.capabilities().streaming() && !served.capabilities().pushNotifications(), served);
        });
        checks.add("what needs no capability works", operation, caller -> Checks.equal("hello", text(caller.send("hello"))));
        checks.add("webhooks are not supported", operation, caller -> {
            var off = PushNotificationNotSupportedError.class;
            var task = caller.send("hello").getId();
            var get = new GetTaskPushNotificationConfigParams(task, CONFIG);
            var list = new ListTaskPushNotificationConfigParams(task);
            var delete = new DeleteTaskPushNotificationConfigParams(task, CONFIG);
            refused(caller, off, () -> caller.register(task, "https://one.example/hook"));
            refused(caller, off, () -> caller.blocking.getTaskPushNotificationConfiguration(get, CONTEXT));
            refused(caller, off, () -> caller.blocking.listTaskPushNotificationConfigurations(list, CONTEXT));
            refused(caller, off, () -> caller.blocking.deleteTaskPushNotificationConfigurations(delete, CONTEXT));
        });
        if (transport != TransportProtocol.HTTP_JSON) {  // as `streamErrors`
            checks.add("streams are an unsupported operation", operation, caller -> {
                var task = caller.send("hello").getId();
                refused(caller, UnsupportedOperationError.class, () -> caller.stream(message("hello", null)));
                refused(caller, UnsupportedOperationError.class, () -> caller.follow(task).all());
            });
        }
    }

    private static AgentCard promising(AgentCard card) {
        var all = new AgentCapabilities.Builder().streaming(true).pushNotifications(true).build();
        return new AgentCard.Builder(card).capabilities(all).build();
    }

    private static void all(Checks<Caller> checks, TransportProtocol transport) {
        sends(checks);
        streams(checks);
        errors(checks, transport == TransportProtocol.HTTP_JSON ? "" : "errors");
        webhooks(checks);
        if (transport != TransportProtocol.HTTP_JSON) {
            streamErrors(checks);
        }
    }

    private static Client client(AgentCard card, TransportProtocol transport, boolean streaming, boolean polling)
            throws Exception {
        var config = new ClientConfig.Builder().setUseClientPreference(true).setStreaming(streaming).setPolling(polling);
        var builder = Client.builder(card).clientConfig(config.build());
        switch (transport) {
            case JSONRPC -> builder.withTransport(JSONRPCTransport.class, new JSONRPCTransportConfigBuilder());
            case HTTP_JSON -> builder.withTransport(RestTransport.class, new RestTransportConfigBuilder());
            case GRPC -> builder.withTransport(GrpcTransport.class, new GrpcTransportConfigBuilder()
                    .channelFactory(url -> ManagedChannelBuilder.forTarget(url).usePlaintext().build()));
        }
        return builder.build();
    }

    public static void main(String[] words) throws Exception {
        var served = A2A.getAgentCard(Checks.option(words, "--http"));
        var bare = List.of(words).contains("--bare");
        var card = bare ? promising(served) : served;
        var good = true;
        for (var transport : TransportProtocol.values()) {
            var checks = new Checks<Caller>("io.github.a2asdk", "a2a-java-sdk-client");
            if (bare) {
                refusals(checks, served, transport);
            } else {
                all(checks, transport);
            }
            var caller = new Caller(transport, card, client(card, transport, true, false),
                    client(card, transport, false, false), client(card, transport, false, true));
            good &= checks.run("0.3 over " + transport.asString(), caller, List.of(words).contains("--short"));
        }
        Checks.finish(good);
    }
}
