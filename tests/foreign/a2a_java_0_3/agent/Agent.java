import io.a2a.server.PublicAgentCard;
import io.a2a.server.agentexecution.AgentExecutor;
import io.a2a.spec.AgentCapabilities;
import io.a2a.spec.AgentCard;
import io.a2a.spec.AgentSkill;
import io.a2a.spec.TransportProtocol;
import io.a2a.util.Utils;
import io.quarkus.runtime.Quarkus;
import io.quarkus.runtime.QuarkusApplication;
import io.quarkus.runtime.annotations.QuarkusMain;
import io.quarkus.vertx.web.Route;
import io.vertx.ext.web.RoutingContext;
import jakarta.enterprise.context.ApplicationScoped;
import jakarta.enterprise.inject.Produces;
import java.util.List;
import java.util.Map;
import org.eclipse.microprofile.config.ConfigProvider;

/**
 * An agent of a2a-java 0.3 with the playground's commands, on the SDK's reference server.
 *
 * <p>Prints the URL of its cards: /rpc and /rest have one each, which offers that binding only.
 */
@QuarkusMain
public class Agent implements QuarkusApplication {
    @Override
    public int run(String... words) {
        var port = ConfigProvider.getConfig().getValue("quarkus.http.port", int.class);  // the one that was free
        System.out.println("http://127.0.0.1:" + port);
        Quarkus.waitForExit();
        return 0;
    }

    /** What the server asks for. */
    @ApplicationScoped
    public static class Parts {
        private static final Map<String, TransportProtocol> BINDINGS =
                Map.of("rpc", TransportProtocol.JSONRPC, "rest", TransportProtocol.HTTP_JSON);

        @Produces
        public AgentExecutor executor() {
            return new Words();
        }

        /** The server's own card, which is not called for here. */
        @Produces
        @PublicAgentCard
        public AgentCard card() {
            return card("rpc", "http://127.0.0.1");
        }

        @Route(path = "/:name/.well-known/agent-card.json", methods = Route.HttpMethod.GET)
        public void cards(RoutingContext call) throws Exception {
            var card = card(call.pathParam("name"), "http://" + call.request().authority());
            call.response().putHeader("Content-Type", "application/json").end(Utils.OBJECT_MAPPER.writeValueAsString(card));
        }

        private static AgentCard card(String name, String url) {
            return new AgentCard.Builder()
                    .name("Words " + name)
                    .description("Does what a message says")
                    .version("1")
                    .protocolVersion("0.3.0")
                    .url(url)
                    .preferredTransport(BINDINGS.get(name).asString())
                    .capabilities(new AgentCapabilities.Builder().streaming(true).build())
                    .defaultInputModes(List.of("text/plain"))
                    .defaultOutputModes(List.of("text/plain"))
                    .skills(List.of(new AgentSkill.Builder().id("words").name("Words")
                            .description("Does what a message says").tags(List.of("words")).build()))
                    .build();
        }
    }
}
