// a2a-go 0.3: every operation of its client over JSON-RPC and gRPC. It has no HTTP+JSON.
package main

import (
	"context"
	"fmt"
	"os"

	"dragoman.test/checks"
	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2aclient"
	"github.com/a2aproject/a2a-go/a2aclient/agentcard"
	"github.com/a2aproject/a2a-go/a2aext"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const module = "github.com/a2aproject/a2a-go"

func main() {
	arguments, ctx := checks.Parse(), context.Background()
	card, err := agentcard.DefaultResolver.Resolve(ctx, arguments.HTTP)
	if err != nil {
		fmt.Println("FAIL  the card is read:", err)
		os.Exit(1)
	}
	good, client, wanted := true, "a2a-go "+checks.Version(module), checks.All
	if arguments.Bare {
		wanted = checks.Bare
		// The SDK looks at the card before it streams.
		card.Capabilities = a2a.AgentCapabilities{Streaming: true, PushNotifications: true}
	}
	plain := a2aclient.WithGRPCTransport(grpc.WithTransportCredentials(insecure.NewCredentials()))
	for _, binding := range []a2a.TransportProtocol{a2a.TransportProtocolJSONRPC, a2a.TransportProtocolGRPC} {
		connected, err := a2aclient.NewFromCard(
			ctx, card, plain,
			a2aclient.WithConfig(a2aclient.Config{PreferredTransports: []a2a.TransportProtocol{binding}}),
			a2aclient.WithInterceptors(a2aext.NewActivator(checks.Base64Files)),
		)
		if err != nil {
			fmt.Printf("FAIL  %s is offered: %v\n", binding, err)
			good = false
			continue
		}
		caller := &caller{connected, arguments.HTTP, binding}
		title := fmt.Sprintf("0.3 over %s", binding)
		if arguments.Short {
			checks.Finish(checks.Run(client, title, caller, checks.Short))
			return
		}
		good = checks.Run(client, title, caller, wanted) && good
	}
	checks.Finish(good)
}
