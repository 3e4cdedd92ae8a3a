import static java.nio.charset.StandardCharsets.UTF_8;

import io.a2a.server.agentexecution.AgentExecutor;
import io.a2a.server.agentexecution.RequestContext;
import io.a2a.server.events.EventQueue;
import io.a2a.server.tasks.TaskUpdater;
import io.a2a.spec.DataPart;
import io.a2a.spec.FilePart;
import io.a2a.spec.FileWithBytes;
import io.a2a.spec.Message;
import io.a2a.spec.Part;
import io.a2a.spec.Task;
import io.a2a.spec.TaskState;
import io.a2a.spec.TaskStatus;
import io.a2a.spec.TextPart;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** Executes the command in the first word of a message. */
final class Words implements AgentExecutor {
    private static final Map<String, Object> DATA = data();

    /** By task: the end of its sleep. */
    private final Map<String, CountDownLatch> sleeping = new ConcurrentHashMap<>();

    @Override
    public void execute(RequestContext call, EventQueue events) {
        var text = call.getUserInput("");
        var space = (text + " ").indexOf(' ');
        var command = text.substring(0, space);
        var rest = text.substring(Math.min(space + 1, text.length()));
        if (command.equals("reply")) {
            events.enqueueEvent(new Message.Builder().messageId(UUID.randomUUID().toString()).role(Message.Role.AGENT)
                    .parts(new TextPart(rest)).build());
            return;
        }
        var updater = new TaskUpdater(call, events);
        if (call.getTask() == null) {
            events.enqueueEvent(submitted(call));
        } else {
            command = "echo";
            rest = "you said: " + text;
        }
        updater.startWork();
        try {
            obey(command, rest, call, updater);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private void obey(String command, String rest, RequestContext call, TaskUpdater updater) throws InterruptedException {
        switch (command) {
            case "stream" -> stream(rest, updater);
            case "sleep" -> {
                if (!slept(rest, call.getTaskId(), updater)) {
                    return;
                }
            }
            case "ask" -> {
                updater.requiresInput(said(updater, "what would you like to say?"), true);
                return;
            }
            case "auth" -> {
                updater.requiresAuth(said(updater, "authenticate, then send anything"), true);
                return;
            }
            case "fail" -> {
                updater.fail(said(updater, "failing, as asked"));
                return;
            }
            case "reject" -> {
                updater.reject(said(updater, "rejecting, as asked"));
                return;
            }
            case "file" -> {
                var bytes = Base64.getEncoder().encodeToString("hello from the playground\n".getBytes(UTF_8));
                updater.addArtifact(List.of(new FilePart(new FileWithBytes("text/plain", "hello.txt", bytes))), null, "hello.txt", null);
            }
            case "data" -> updater.addArtifact(List.of(new DataPart(DATA)));
            case "context" -> updater.addArtifact(List.of(new TextPart(call.getContextId())));
            case "echo" -> updater.addArtifact(List.of(new TextPart(rest)));
            default -> updater.addArtifact(call.getMessage().getParts());
        }
        updater.complete();
    }

    @Override
    public void cancel(RequestContext call, EventQueue events) {
        var updater = new TaskUpdater(call, events);
        updater.cancel(said(updater, "canceled, as asked"));
        var sleep = sleeping.get(call.getTaskId());
        if (sleep != null) {
            sleep.countDown();
        }
    }

    /** Sends the chunks of `stream N MS`. */
    private static void stream(String rest, TaskUpdater updater) throws InterruptedException {
        var numbers = Arrays.stream(rest.split(" ")).mapToInt(Integer::parseInt).toArray();
        for (var number = 1; number <= numbers[0]; number++) {
            updater.addArtifact(List.of(new TextPart("chunk-" + number + " ")), "output", null, null, number > 1, null);
            TimeUnit.MILLISECONDS.sleep(numbers[1]);
        }
    }

    /** Sleeps; false if the task was canceled until then. */
    private boolean slept(String rest, String task, TaskUpdater updater) throws InterruptedException {
        var end = sleeping.computeIfAbsent(task, id -> new CountDownLatch(1));
        updater.updateStatus(TaskState.WORKING, said(updater, "sleeping for " + rest + " s"));
        try {
            return !end.await((long) (Double.parseDouble(rest) * 1000), TimeUnit.MILLISECONDS);
        } finally {
            sleeping.remove(task);
        }
    }

    private static Task submitted(RequestContext call) {
        return new Task.Builder().id(call.getTaskId()).contextId(call.getContextId())
                .status(new TaskStatus(TaskState.SUBMITTED)).history(call.getMessage()).build();
    }

    private static Message said(TaskUpdater updater, String text) {
        return updater.newAgentMessage(List.<Part<?>>of(new TextPart(text)), null);
    }

    private static Map<String, Object> data() {
        var nested = new HashMap<String, Object>();
        nested.put("true", true);
        nested.put("nothing", null);
        return Map.of("hello", "world", "numbers", List.of(1, 2, 3), "nested", nested);
    }
}
