// Sends a message to an agent over gRPC, then over REST: go run . 127.0.0.1:50051 http://127.0.0.1:8080 hello
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"

	a2a "example.com/hello/gen/lf/a2a/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
)

func main() {
	text := strings.Join(os.Args[3:], " ")
	if err := streamOverGRPC(os.Args[1], request("m-grpc", text)); err != nil {
		log.Fatal(err)
	}
	if err := sendOverREST(os.Args[2], request("m-rest", text)); err != nil {
		log.Fatal(err)
	}
}

func request(id, text string) *a2a.SendMessageRequest {
	part := &a2a.Part{Content: &a2a.Part_Text{Text: text}}
	return &a2a.SendMessageRequest{
		Message: &a2a.Message{MessageId: id, Role: a2a.Role_ROLE_USER, Parts: []*a2a.Part{part}},
	}
}

func streamOverGRPC(address string, request *a2a.SendMessageRequest) error {
	// Without encryption, for servers on this machine only; use credentials.NewTLS for others.
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	events, err := a2a.NewA2AServiceClient(connection).SendStreamingMessage(context.Background(), request)
	for err == nil {
		var event *a2a.StreamResponse
		if event, err = events.Recv(); err == nil {
			fmt.Printf("%T%s\n", event.Payload, texts(event.GetArtifactUpdate().GetArtifact()))
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// The same message as JSON, by protojson. A2A-Version chooses the form of the answer.
func sendOverREST(server string, request *a2a.SendMessageRequest) error {
	body, err := protojson.Marshal(request)
	if err != nil {
		return err
	}
	call, err := http.NewRequest(http.MethodPost, server+"/message:send", bytes.NewReader(body))
	if err != nil {
		return err
	}
	call.Header.Set("Content-Type", "application/json")
	call.Header.Set("A2A-Version", "1.0")
	response, err := http.DefaultClient.Do(call)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answered, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", response.Status, answered)
	}
	answer := &a2a.SendMessageResponse{}
	if err := protojson.Unmarshal(answered, answer); err != nil {
		return err
	}
	task := answer.GetTask()
	fmt.Println(task.GetStatus().GetState().String() + texts(task.GetArtifacts()...))
	return nil
}

// The texts of artifacts, each after a space.
func texts(artifacts ...*a2a.Artifact) string {
	var all strings.Builder
	for _, artifact := range artifacts {
		for _, part := range artifact.GetParts() {
			all.WriteString(" " + part.GetText())
		}
	}
	return all.String()
}
