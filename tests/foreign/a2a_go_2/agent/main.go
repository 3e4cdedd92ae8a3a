// An agent of a2a-go 2.x with the playground's commands, over each of its bindings in 1.0.
//
// Prints the URL of its cards: /rpc, /rest and /grpc have one each, which offers that binding only.
package main

import (
	"fmt"
	"net"
	"net/http"

	"github.com/a2aproject/a2a-go/v2/a2a"
	grpcv1 "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"google.golang.org/grpc"
)

func main() {
	handler := a2asrv.NewHandler(&words{})
	web, calls := listen(), listen()
	server := grpc.NewServer()
	grpcv1.NewHandler(handler).RegisterWith(server)
	go func() { panic(server.Serve(calls)) }()
	url, mux := "http://"+web.Addr().String(), http.NewServeMux()
	mux.Handle("/calls/rpc", a2asrv.NewJSONRPCHandler(handler))
	mux.Handle("/calls/rest/", http.StripPrefix("/calls/rest", a2asrv.NewRESTHandler(handler)))
	for name, one := range map[string]*a2a.AgentInterface{
		"rpc":  a2a.NewAgentInterface(url+"/calls/rpc", a2a.TransportProtocolJSONRPC),
		"rest": a2a.NewAgentInterface(url+"/calls/rest", a2a.TransportProtocolHTTPJSON),
		"grpc": a2a.NewAgentInterface(calls.Addr().String(), a2a.TransportProtocolGRPC),
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

func card(name string, one *a2a.AgentInterface) *a2a.AgentCard {
	return &a2a.AgentCard{
		Name:                "Words " + name,
		Description:         "Does what a message says",
		Version:             "1",
		SupportedInterfaces: []*a2a.AgentInterface{one},
		DefaultInputModes:   []string{"text/plain"},
		DefaultOutputModes:  []string{"text/plain"},
		Capabilities:        a2a.AgentCapabilities{Streaming: true},
		Skills: []a2a.AgentSkill{
			{ID: "words", Name: "Words", Description: "Does what a message says", Tags: []string{"words"}},
		},
	}
}
