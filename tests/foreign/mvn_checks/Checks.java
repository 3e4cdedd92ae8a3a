import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;

/** Checks of a Java client: a line for each check, and one for each operation of the table that it covers. */
final class Checks<C> {
    /** How long a check waits for something that must come. */
    static final long LIMIT_SECONDS = 60;

    interface Test<C> {
        void run(C caller) throws Exception;
    }

    interface Call {
        void run() throws Exception;
    }

    private record Check<C>(String sentence, List<String> operations, Test<C> test) {}

    private final String client;
    private final List<Check<C>> checks = new ArrayList<>();

    /** {@code artifact}: the client in the table, with its version, by the properties that Maven packs into its jar. */
    Checks(String group, String artifact) throws Exception {
        var properties = new Properties();
        try (var stream = Checks.class.getResourceAsStream("/META-INF/maven/" + group + "/" + artifact + "/pom.properties")) {
            properties.load(stream);
        }
        client = artifact + " " + properties.getProperty("version");
    }

    /** Registers a check that covers {@code operations}, separated by commas. */
    void add(String sentence, String operations, Test<C> test) {
        checks.add(new Check<>(sentence, operations.isEmpty() ? List.of() : List.of(operations.split(", ")), test));
    }

    /** Runs every check, or the first, and returns whether all passed. {@code transport}: the second column of the table. */
    boolean run(String transport, C caller, boolean onlyFirst) {
        var good = true;
        for (var check : onlyFirst ? checks.subList(0, 1) : checks) {
            var problem = problem(check.test, caller);
            good &= problem.isEmpty();
            var result = problem.isEmpty() ? "ok  " : "FAIL  ";
            System.out.println(result + transport + ": " + check.sentence + (problem.isEmpty() ? "" : ": " + problem));
            for (var operation : check.operations) {
                System.out.println(String.join("\t", "op", client, transport, operation, problem.isEmpty() ? "ok" : "failed"));
            }
        }
        return good;
    }

    /** What went wrong; empty for a passed check. */
    private static <C> String problem(Test<C> test, C caller) {
        var running = CompletableFuture.runAsync(() -> {
            try {
                test.run(caller);
            } catch (Throwable error) {
                throw new CompletionException(error);
            }
        });
        try {
            running.get(LIMIT_SECONDS, TimeUnit.SECONDS);
            return "";
        } catch (Exception error) {
            var cause = error.getCause() == null ? error : error.getCause();
            var line = List.of(cause.getStackTrace()).stream()
                    .filter(frame -> frame.getClassName().startsWith("Check")).skip(cause instanceof Failed ? 1 : 0).findFirst();
            return (cause + " " + line.map(Object::toString).orElse("")).replace("\n", " ");
        }
    }

    /** A check that did not hold. */
    static final class Failed extends AssertionError {
        Failed(String text) {
            super(text);
        }
    }

    static void equal(Object expected, Object found) {
        if (!Objects.equals(expected, found)) {
            throw new Failed("expected " + expected + ", found " + found);
        }
    }

    static void yes(boolean condition, Object shown) {
        if (!condition) {
            throw new Failed(String.valueOf(shown));
        }
    }

    /** Makes a call that has to fail; the error, and what caused it, in one list. */
    static List<Throwable> failure(Call call) throws Exception {
        Throwable error = null;
        try {
            call.run();
        } catch (Throwable found) {
            error = found;
        }
        if (error == null) {
            throw new Failed("no error");
        }
        var chain = new ArrayList<Throwable>();
        for (; error != null; error = error.getCause()) {
            chain.add(error);
        }
        return chain;
    }

    /** A receiver of push notifications on a free port. */
    static final class Hook implements AutoCloseable {
        record Delivery(Map<String, String> headers, String body) {}

        private final HttpServer server;
        private final BlockingQueue<Delivery> received = new LinkedBlockingQueue<>();

        Hook() throws Exception {
            server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
            server.createContext("/", exchange -> {
                var headers = new HashMap<String, String>();
                exchange.getRequestHeaders().forEach((name, values) -> headers.put(name.toLowerCase(), values.get(0)));
                var body = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
                exchange.sendResponseHeaders(204, -1);
                exchange.close();
                received.add(new Delivery(headers, body));
            });
            server.start();
        }

        String url() {
            return "http://127.0.0.1:" + server.getAddress().getPort() + "/hook";
        }

        /** All deliveries up to the first with a body for which {@code last} holds. */
        List<Delivery> until(Predicate<String> last) throws InterruptedException {
            var found = new ArrayList<Delivery>();
            do {
                var next = received.poll(LIMIT_SECONDS, TimeUnit.SECONDS);
                yes(next != null, "no delivery; before: " + found);
                found.add(next);
            } while (!last.test(found.get(found.size() - 1).body));
            return found;
        }

        @Override
        public void close() {
            server.stop(0);
        }
    }

    /** The value after an option such as {@code --http}. */
    static String option(String[] words, String name) {
        return words[List.of(words).indexOf(name) + 1];
    }

    /** Ends the program: the line {@code end} marks complete output. */
    static void finish(boolean allGood) {
        System.out.println("end");
        System.exit(allGood ? 0 : 1);
    }
}
