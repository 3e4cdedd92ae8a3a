// a2a-go 2.x: every operation of its client over JSON-RPC, HTTP+JSON and gRPC, in 1.0 and its 0.3 layer.
package main

import (
	"context"
	"fmt"
	"os"

	"dragoman.test/checks"
	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/a2aproject/a2a-go/v2/a2aext"
	grpcv0 "github.com/a2aproject/a2a-go/v2/a2agrpc/v0"
	grpcv1 "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const module = "github.com/a2aproject/a2a-go/v2"

var plain = grpc.WithTransportCredentials(insecure.NewCredentials())

// options of a client that speaks both versions.
var options = []a2aclient.FactoryOption{
	grpcv1.WithGRPCTransport(plain),
	a2av0.WithJSONRPCTransport(a2av0.JSONRPCTransportConfig{}),
	a2av0.WithRESTTransport(a2av0.RESTTransportConfig{}),
	a2aclient.WithCompatTransport(a2av0.Version, a2a.TransportProtocolGRPC, grpcv0.NewGRPCTransportFactory(plain)),
}

func main() {
	arguments, ctx := checks.Parse(), context.Background()
	resolver := &agentcard.Resolver{CardParser: a2av0.NewAgentCardParser()}
	card, err := resolver.Resolve(ctx, arguments.HTTP)
	if err != nil {
		fmt.Println("FAIL  the card is read:", err)
		os.Exit(1)
	}
	good, client, wanted, newer := true, "a2a-go "+checks.Version(module), checks.All, checks.Lists
	if arguments.Bare {
		wanted, newer = checks.Bare, checks.BareV1
		// The SDK looks at the card before it streams or gets the extended card.
		card.Capabilities = a2a.AgentCapabilities{Streaming: true, PushNotifications: true, ExtendedAgentCard: true}
	}
	for _, version := range []a2a.ProtocolVersion{a2a.Version, a2av0.Version} {
		for _, binding := range []a2a.TransportProtocol{"JSONRPC", "HTTP+JSON", "GRPC"} {
			caller, err := connect(ctx, resolver, arguments.HTTP, card, version, binding)
			if err != nil {
				fmt.Printf("FAIL  %s over %s is offered: %v\n", version, binding, err)
				good = false
				continue
			}
			title := fmt.Sprintf("%s over %s", version, binding)
			if version == a2av0.Version {
				title = fmt.Sprintf("0.3 compat over %s", binding)
			}
			if arguments.Short {
				checks.Finish(checks.Run(client, title, caller, checks.Short))
				return
			}
			good = checks.Run(client, title, caller, wanted) && good
			if version == a2a.Version {
				good = checks.Run(client, title, caller, newer) && good
			}
		}
	}
	checks.Finish(good)
}

// connect returns a caller over the only interface of the card that has this version and binding.
func connect(
	ctx context.Context, resolver *agentcard.Resolver, url string, card *a2a.AgentCard,
	version a2a.ProtocolVersion, binding a2a.TransportProtocol,
) (*caller, error) {
	for _, one := range card.SupportedInterfaces {
		same := one.ProtocolVersion == version || (version == a2av0.Version && one.ProtocolVersion == "0.3")
		if !same || one.ProtocolBinding != binding {
			continue
		}
		shown := *card
		shown.SupportedInterfaces = []*a2a.AgentInterface{one}
		all := append([]a2aclient.FactoryOption{}, options...)
		if version == a2av0.Version {
			all = append(all, a2aclient.WithCallInterceptors(a2aext.NewActivator(checks.Base64Files)))
		}
		client, err := a2aclient.NewFromCard(ctx, &shown, all...)
		return &caller{client, resolver, url, binding, version == a2av0.Version}, err
	}
	return nil, fmt.Errorf("no such interface in %v", card.SupportedInterfaces)
}
