// Serves the playground as a worker: worker --server HOST:PORT [--key-file FILE] [--tls-ca FILE] [--id ID] [--turns N]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	address := flag.String("server", "127.0.0.1:50051", "the server's gRPC port")
	keyFile := flag.String("key-file", "", "file with an API key")
	ca := flag.String("tls-ca", "", "file with the trusted authorities; encrypts the connection")
	id := flag.String("id", "playground-go", "the agent's id")
	turns := flag.Uint("turns", 100, "concurrent turns")
	flag.Parse()
	server := Server{Address: *address, CA: *ca}
	if *keyFile != "" {
		key, err := os.ReadFile(*keyFile)
		if err != nil {
			fail(err)
		}
		server.Key = strings.TrimSpace(string(key))
	}
	worker := NewWorker(server, uint32(*turns), Playground(*id))
	stopping, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(stopping, worker.Drain)
	if err := worker.Run(context.Background()); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(3)
}
