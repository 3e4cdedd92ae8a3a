// Sends a message to an agent: go run . 127.0.0.1:50051 hello
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	a2a "example.com/hello/gen/lf/a2a/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/local"
)

func main() {
	// Without encryption, for servers on this machine only; use credentials.NewTLS for others.
	connection, err := grpc.Dial(os.Args[1], grpc.WithTransportCredentials(local.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	text := &a2a.Part{Content: &a2a.Part_Text{Text: strings.Join(os.Args[2:], " ")}}
	message := &a2a.Message{MessageId: "m-" + fmt.Sprint(os.Getpid()), Role: a2a.Role_ROLE_USER, Parts: []*a2a.Part{text}}
	events, err := a2a.NewA2AServiceClient(connection).SendStreamingMessage(context.Background(), &a2a.SendMessageRequest{Message: message})
	for err == nil {
		var event *a2a.StreamResponse
		if event, err = events.Recv(); err == nil {
			fmt.Printf("%T", event.Payload)
			for _, part := range event.GetArtifactUpdate().GetArtifact().GetParts() {
				fmt.Print(" ", part.GetText())
			}
			fmt.Println()
		}
	}
	if err != io.EOF {
		log.Fatal(err)
	}
}
