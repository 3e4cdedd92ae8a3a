// An agent of a2a-go 0.3 with the playground's commands, over each of its bindings in 0.3.
//
// Prints the URL of its cards: /rpc and /grpc have one each, which offers that binding only.
package main

import (
	"fmt"
	"net"
	"net/http"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2agrpc"
	"github.com/a2aproject/a2a-go/a2asrv"
	"google.golang.org/grpc"
)

func main() {
	handler := a2asrv.NewHandler(&words{})
	web, calls := listen(), listen()
	server := grpc.NewServer()
	a2agrpc.NewHandler(handler).RegisterWith(server)
	go func() { panic(server.Serve(calls)) }()
	url, mux := "http://"+web.Addr().String(), http.NewServeMux()
	mux.Handle("/calls/rpc", a2asrv.NewJSONRPCHandler(handler))
	for name, one := range map[string]a2a.AgentInterface{
		"rpc":  {URL: url + "/calls/rpc", Transport: a2a.TransportProtocolJSONRPC},
		"grpc": {URL: calls.Addr().String(), Transport: a2a.TransportProtocolGRPC},
	} {
		mux.Handle("/"+name+a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(card(name, one)))
	}
	fmt.Println(url)
	panic(http.Serve(web, mux))
}

func listen() net.Listener {
	found, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	return found
}

func card(name string, one a2a.AgentInterface) *a2a.AgentCard {
	return &a2a.AgentCard{
		Name:               "Words " + name,
		Description:        "Does what a message says",
		Version:            "1",
		ProtocolVersion:    "0.3.0",
		URL:                one.URL,
		PreferredTransport: one.Transport,
		DefaultInputModes:  []string{"text/plain"},
		DefaultOutputModes: []string{"text/plain"},
		Capabilities:       a2a.AgentCapabilities{Streaming: true},
		Skills: []a2a.AgentSkill{
			{ID: "words", Name: "Words", Description: "Does what a message says", Tags: []string{"words"}},
		},
	}
}
