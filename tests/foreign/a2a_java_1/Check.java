import static java.nio.charset.StandardCharsets.UTF_8;

import io.a2a.A2A;
import io.a2a.client.Client;
import io.a2a.client.ClientEvent;
import io.a2a.client.MessageEvent;
import io.a2a.client.TaskEvent;
import io.a2a.client.TaskUpdateEvent;
import io.a2a.client.config.ClientConfig;
import io.a2a.client.transport.jsonrpc.JSONRPCTransport;
import io.a2a.client.transport.jsonrpc.JSONRPCTransportConfigBuilder;
import io.a2a.client.transport.rest.RestTransport;
import io.a2a.client.transport.rest.RestTransportConfigBuilder;
import io.a2a.client.transport.spi.interceptors.ClientCallContext;
import io.a2a.spec.AgentCapabilities;
import io.a2a.spec.AgentCard;
import io.a2a.spec.Artifact;
import io.a2a.spec.ContentTypeNotSupportedError;
import io.a2a.spec.DataPart;
import io.a2a.spec.ExtensionSupportRequiredError;
import io.a2a.spec.FilePart;
import io.a2a.spec.FileWithBytes;
import io.a2a.spec.FileWithUri;
import io.a2a.spec.ListTasksParams;
import io.a2a.spec.Message;
import io.a2a.spec.MessageSendParams;
import io.a2a.spec.Part;
import io.a2a.spec.Task;
import io.a2a.spec.TaskArtifactUpdateEvent;
import io.a2a.spec.TaskIdParams;
import io.a2a.spec.TaskNotCancelableError;
import io.a2a.spec.TaskNotFoundError;
import io.a2a.spec.TaskQueryParams;
import io.a2a.spec.TaskState;
import io.a2a.spec.TaskStatusUpdateEvent;
import io.a2a.spec.TextPart;
import io.a2a.spec.TransportProtocol;
import io.a2a.spec.UnsupportedOperationError;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;

/**
 * The Java SDK of A2A 1.0, an alpha version: what of its client a draft of 1.0 has in common with the version, over
 * JSON-RPC and HTTP+JSON. Its webhooks and its gRPC service have the draft's form, and there are no checks of them.
 */
final class Check {
    /** The caller has to add the version: this SDK sends none, which means 0.3. */
    private static final Map<String, String> VERSION = Map.of("A2A-Version", "1.0");
    private static final ClientCallContext CONTEXT = new ClientCallContext(Map.of(), VERSION);
    private static final String ALL_CHUNKS = chunks(20);

    /** The SDK's client on one transport, which streams, waits, or polls. */
    private record Caller(TransportProtocol transport, AgentCard card, Client streaming, Client blocking, Client polling) {
        boolean isJsonRpc() {
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

        /** A task that works. Over HTTP+JSON a stream begins it: a send that does not wait has the draft's form. */
        Task start(String text) throws Exception {
            return isJsonRpc() ? task(polling, message(text, null)) : ((TaskEvent) open(message(text, null)).first()).getTask();
        }

        Task get(String id) throws Exception {
            return blocking.getTask(new TaskQueryParams(id), CONTEXT);
        }

        Task cancel(String id) throws Exception {
            return blocking.cancelTask(new TaskIdParams(id), CONTEXT);
        }

        /** All events of a message, up to the one that ends the stream. */
        List<ClientEvent> stream(Message message) throws Exception {
            return open(message).all();
        }

        private Stream open(Message message) throws Exception {
            var stream = new Stream();
            streaming.sendMessage(message, List.of(stream), stream::fail, CONTEXT);
            return stream;
        }

        Stream follow(String id) throws Exception {
            var stream = new Stream();
            streaming.subscribeToTask(new TaskIdParams(id), List.of(stream), stream::fail, CONTEXT);
            return stream;
        }
    }

    /** The events of a stream as they come. */
    private static final class Stream implements BiConsumer<ClientEvent, AgentCard> {
        private final List<ClientEvent> events = new ArrayList<>();
        private final CompletableFuture<ClientEvent> begun = new CompletableFuture<>();
        private final CompletableFuture<List<ClientEvent>> ended = new CompletableFuture<>();

        @Override
        public void accept(ClientEvent event, AgentCard card) {
            events.add(event);
            begun.complete(event);
            if (event instanceof MessageEvent || update(event) instanceof TaskStatusUpdateEvent status && status.isFinalOrInterrupted()) {
                ended.complete(events);
            }
        }

        void fail(Throwable error) {
            // null: the end of a stream; also of one that could not begin, whose error this SDK does not read.
            var shown = error == null ? new IllegalStateException("the stream ended") : error;
            begun.completeExceptionally(shown);
            ended.completeExceptionally(shown);
        }

        ClientEvent first() throws Exception {
            return begun.get(Checks.LIMIT_SECONDS, TimeUnit.SECONDS);
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
        return Message.builder().messageId("m-1").role(Message.Role.ROLE_USER).parts(parts);
    }

    private static String text(List<Part<?>> parts) {
        var text = new StringBuilder();
        parts.forEach(part -> text.append(((TextPart) part).text()));
        return text.toString();
    }

    private static String text(Task task) {
        var text = new StringBuilder();
        task.artifacts().forEach(artifact -> text.append(text(artifact.parts())));
        return text.toString();
    }

    /** The artifacts of a stream's events, one for each chunk. */
    private static List<Artifact> chunksOf(List<ClientEvent> events) {
        return events.stream().map(Check::update).filter(TaskArtifactUpdateEvent.class::isInstance)
                .map(update -> ((TaskArtifactUpdateEvent) update).artifact()).toList();
    }

    private static String chunks(int last) {
        var text = new StringBuilder();
        for (var number = 1; number <= last; number++) {
            text.append("chunk-").append(number).append(' ');
        }
        return text.toString();
    }

    private static TaskState lastState(List<ClientEvent> events) {
        return ((TaskStatusUpdateEvent) update(events.get(events.size() - 1))).status().state();
    }

    /** Makes a call that must fail. Over HTTP+JSON this SDK reads no error but those of its own servers, and throws at others. */
    private static void refused(Caller caller, Class<? extends Throwable> kind, Checks.Call call) throws Exception {
        var chain = Checks.failure(call);
        Checks.yes(chain.stream().anyMatch(kind::isInstance) || !caller.isJsonRpc(), chain);
    }

    private static void sends(Checks<Caller> checks) {
        checks.add("a send that waits gives the finished task", "send", caller -> {
            var task = caller.send("echo hello");
            Checks.equal(TaskState.TASK_STATE_COMPLETED, task.status().state());
            Checks.equal("hello", text(task));
            Checks.equal("echo hello", text(task.history().get(0).parts()));
        });
        checks.add("failing and rejecting are states, not errors", "send", caller -> {
            Checks.equal(TaskState.TASK_STATE_FAILED, caller.send("fail").status().state());
            Checks.equal(TaskState.TASK_STATE_REJECTED, caller.send("reject").status().state());
        });
        checks.add("a direct reply is a message", "send, stream", caller -> {
            var reply = (MessageEvent) caller.only(caller.blocking, message("reply hi", null));
            Checks.equal("hi", text(reply.getMessage().parts()));
            var events = caller.stream(message("reply hi", null));
            Checks.equal("hi", text(((MessageEvent) events.get(0)).getMessage().parts()));
        });
        checks.add("a follow-up needs only the task every time", "follow-up", caller -> {
            for (var question : List.of("ask", "auth")) {
                var task = caller.send(question);
                var wanted = question.equals("ask") ? TaskState.TASK_STATE_INPUT_REQUIRED : TaskState.TASK_STATE_AUTH_REQUIRED;
                Checks.equal(wanted, task.status().state());
                var answered = caller.answer("blue", task.id());
                Checks.equal(task.id(), answered.id());
                Checks.equal("you said: blue", text(answered));
            }
        });
        checks.add("history is cut to the requested length", "get", caller -> {
            var task = caller.send("ask");
            caller.answer("blue", task.id());
            var asked = caller.isJsonRpc() ? 1 : 10;  // over HTTP+JSON this SDK pads numbers below 10 with a space
            var history = caller.blocking.getTask(new TaskQueryParams(task.id(), asked), CONTEXT).history();
            Checks.equal(Math.min(asked, 3), history.size());
        });
        checks.add("files and data go there and back", "send, get", caller -> {
            var bytes = new byte[] {0, 1, -1, 'x'};
            var file = new FileWithBytes("application/octet-stream", "x.bin", Base64.getEncoder().encodeToString(bytes));
            var link = new FileWithUri("text/csv", "x.csv", "http://127.0.0.1:1/x.csv");
            var data = Map.<String, Object>of("words", List.of("a", "b"), "nested", Map.of("yes", true));
            var sent = builder(new FilePart(file), new FilePart(link), new DataPart(data)).build();
            var task = caller.task(caller.blocking, sent);
            for (var shown : List.of(task, caller.get(task.id()))) {
                var parts = shown.artifacts().get(0).parts();
                var found = (FileWithBytes) ((FilePart) parts.get(0)).file();
                Checks.equal(file, found);
                Checks.equal(link.uri(), ((FileWithUri) ((FilePart) parts.get(1)).file()).uri());
                Checks.equal(data, ((DataPart) parts.get(2)).data());
            }
        });
        checks.add("a file of the agent can be read", "send", caller -> {
            var part = (FilePart) caller.send("file").artifacts().get(0).parts().get(0);
            var file = (FileWithBytes) part.file();
            Checks.equal("hello from the playground\n", new String(Base64.getDecoder().decode(file.bytes()), UTF_8));
            Checks.equal("hello.txt", file.name());
        });
    }

    private static void streams(Checks<Caller> checks) {
        checks.add("a stream shows every chunk in order", "stream", caller -> {
            var events = caller.stream(message("stream 5 5", null));
            var task = ((TaskEvent) events.get(0)).getTask();
            var chunks = chunksOf(events);
            Checks.equal(5, chunks.size());
            Checks.equal(chunks(5), chunks.stream().map(chunk -> text(chunk.parts())).reduce("", String::concat));
            Checks.equal(TaskState.TASK_STATE_COMPLETED, lastState(events));
            Checks.equal(chunks(5), text(caller.get(task.id())));
        });
        checks.add("a streamed question ends the stream", "stream", caller ->
                Checks.equal(TaskState.TASK_STATE_INPUT_REQUIRED, lastState(caller.stream(message("ask", null)))));
        checks.add("a subscription shows the rest", "subscribe", caller -> {
            var task = caller.start("stream 20 40");
            var events = caller.follow(task.id()).all();
            var whole = ((TaskUpdateEvent) events.get(events.size() - 1)).getTask();
            Checks.equal(ALL_CHUNKS, text(whole));
        });
        checks.add("a task is canceled and its followers hear of it", "cancel, subscribe", caller -> {
            var task = caller.start("sleep 30");
            var following = caller.follow(task.id());
            following.first();
            Checks.equal(TaskState.TASK_STATE_CANCELED, caller.cancel(task.id()).status().state());
            Checks.equal(TaskState.TASK_STATE_CANCELED, lastState(following.all()));
            refused(caller, TaskNotCancelableError.class, () -> caller.cancel(task.id()));
        });
    }

    private static void errors(Checks<Caller> checks, String operation) {
        checks.add("the card declares what the agent can", "card", caller -> {
            Checks.equal("Playground", caller.card.name());
            Checks.yes(caller.card.capabilities().streaming(), caller.card);
        });
        checks.add("an unknown task is not found", operation, caller -> {
            refused(caller, TaskNotFoundError.class, () -> caller.get("no-such-task"));
            refused(caller, TaskNotFoundError.class, () -> caller.cancel("no-such-task"));
            refused(caller, TaskNotFoundError.class, () -> caller.answer("hello", "no-such-task"));
        });
        checks.add("a type that the agent does not take is refused", operation, caller -> {
            var odd = new FilePart(new FileWithBytes("application/x-unsupported", null, "AAAA"));
            refused(caller, ContentTypeNotSupportedError.class, () -> caller.task(caller.blocking, builder(odd).build()));
        });
    }

    private static void nonBlocking(Checks<Caller> checks) {
        checks.add("a send that does not wait gives a task to look at", "non-blocking send, get", caller -> {
            var task = caller.task(caller.polling, message("sleep 0.5", null));
            Checks.yes(List.of(TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING).contains(task.status().state()), task);
            while (caller.get(task.id()).status().state() != TaskState.TASK_STATE_COMPLETED) {
                Thread.onSpinWait();
            }
        });
    }

    private static void pages(Checks<Caller> checks) {
        // Over JSON-RPC this SDK takes full pages only.
        checks.add("pages of tasks follow their tokens", "list", caller -> {
            var context = UUID.randomUUID().toString();
            var sent = new TreeSet<String>();
            for (var count = 0; count < 4; count++) {
                var message = builder(new TextPart("hello")).contextId(context).build();
                sent.add(caller.task(caller.blocking, message).id());
            }
            var seen = new TreeSet<String>();
            var token = "";
            do {
                var request = ListTasksParams.builder().contextId(context).pageSize(2);
                request = token.isEmpty() ? request.tenant("") : request.tenant("").pageToken(token);
                var page = caller.blocking.listTasks(request.build(), CONTEXT);
                page.tasks().forEach(task -> seen.add(task.id()));
                token = page.nextPageToken() == null ? "" : page.nextPageToken();
            } while (!token.isEmpty());
            Checks.equal(sent, seen);
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
            var declared = served.capabilities();
            Checks.yes(!declared.streaming() && !declared.pushNotifications() && !declared.extendedAgentCard(), served);
        });
        checks.add("what needs no capability works", operation, caller -> Checks.equal("hello", text(caller.send("hello"))));
        checks.add("an extension that is required has to be named", operation, caller -> {
            var params = MessageSendParams.builder().message(message("hello", null)).tenant("strict").build();
            refused(caller, ExtensionSupportRequiredError.class,
                    () -> caller.blocking.sendMessage(params, List.of(), null, CONTEXT));
        });
        if (transport == TransportProtocol.JSONRPC) {  // as `streamErrors`
            checks.add("streams are an unsupported operation", operation, caller -> {
                var task = caller.send("hello").id();
                refused(caller, UnsupportedOperationError.class, () -> caller.stream(message("hello", null)));
                refused(caller, UnsupportedOperationError.class, () -> caller.follow(task).all());
            });
        } else {  // over JSON-RPC this SDK cannot read the answer to that
            checks.add("an extended card is an unsupported operation", operation, caller ->
                    refused(caller, UnsupportedOperationError.class, () -> caller.blocking.getExtendedAgentCard(CONTEXT)));
        }
    }

    private static AgentCard promising(AgentCard card) {
        var all = AgentCapabilities.builder().streaming(true).pushNotifications(true).extendedAgentCard(true).build();
        return AgentCard.builder(card).capabilities(all).build();
    }

    private static void all(Checks<Caller> checks, TransportProtocol transport) {
        sends(checks);
        streams(checks);
        errors(checks, transport == TransportProtocol.JSONRPC ? "errors" : "");
        pages(checks);
        if (transport == TransportProtocol.JSONRPC) {
            nonBlocking(checks);
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
            default -> throw new IllegalArgumentException(transport.asString());
        }
        return builder.build();
    }

    public static void main(String[] words) throws Exception {
        var served = A2A.getAgentCard(Checks.option(words, "--http"), null, VERSION);
        var bare = List.of(words).contains("--bare");
        var card = bare ? promising(served) : served;
        var good = true;
        for (var transport : List.of(TransportProtocol.JSONRPC, TransportProtocol.HTTP_JSON)) {
            var checks = new Checks<Caller>("io.github.a2asdk", "a2a-java-sdk-client");
            if (bare) {
                refusals(checks, served, transport);
            } else {
                all(checks, transport);
            }
            var caller = new Caller(transport, card, client(card, transport, true, false),
                    client(card, transport, false, false), client(card, transport, false, true));
            good &= checks.run("1.0 over " + transport.asString(), caller, List.of(words).contains("--short"));
        }
        Checks.finish(good);
    }
}
