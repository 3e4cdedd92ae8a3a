// Command judge runs grpc-gateway before a recording gRPC server, and sends generated requests to gateways.
//
//	judge serve          prints the recorder's port, then those of the gateways, one for each service
//	judge send TARGETS   reads cases (JSON lines) from stdin, and prints the answer of each target, in order
//
// The recorder answers the method of the metadata x-rpc with the messages of x-reply, or the google.rpc.Status of
// x-status, and returns the request that it received in the header x-received (all in base64).
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	_ "google.golang.org/genproto/googleapis/rpc/errdetails" // so that details have a JSON form
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	a2a "example.com/judge/gen/a2a/v1"
	ops "example.com/judge/gen/dragoman/ops/v1"
	everything "example.com/judge/gen/judge/v1"
	lf "example.com/judge/gen/lf/a2a/v1"
	library "example.com/judge/gen/library"
)

// raw is a codec that leaves messages as bytes.
type raw struct{}

func (raw) Name() string                       { return "proto" }
func (raw) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error { *v.(*[]byte) = bytes.Clone(data); return nil }
func decode(text string) ([]byte, error)       { return base64.StdEncoding.DecodeString(text) }
func first(md metadata.MD, key string) string  { return strings.Join(md.Get(key), ",") }
func fatal(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func record(_ any, stream grpc.ServerStream) error {
	var request []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	method, _ := grpc.MethodFromServerStream(stream)
	md, _ := metadata.FromIncomingContext(stream.Context())
	received := metadata.Pairs("x-method", method, "x-received", base64.StdEncoding.EncodeToString(request))
	failure, replies := first(md, "x-status"), first(md, "x-reply")
	if first(md, "x-rpc") != method {
		failure, replies = "", "" // they are of another type
	}
	if failure != "" && !strings.Contains(first(md, "user-agent"), "grpc-go") {
		// A failed call has trailers only, as of real servers: after headers, the HTTP status of a stream is sent.
		stream.SetTrailer(received)
	} else if err := stream.SetHeader(received); err != nil { // the only ones that grpc-gateway forwards
		return err
	}
	if failure != "" {
		data, err := decode(failure)
		if err != nil {
			return err
		}
		var sent spb.Status
		if err := proto.Unmarshal(data, &sent); err != nil {
			return err
		}
		return status.ErrorProto(&sent)
	}
	for _, text := range strings.Split(replies, ",") {
		reply, err := decode(strings.TrimSpace(text))
		if err != nil {
			return err
		}
		if err := stream.SendMsg(&reply); err != nil {
			return err
		}
	}
	return nil
}

// The services in the order of services.py.
var services = []func(context.Context, *runtime.ServeMux, *grpc.ClientConn) error{
	lf.RegisterA2AServiceHandler,
	a2a.RegisterA2AServiceHandler,
	ops.RegisterOpsServiceHandler,
	library.RegisterLibraryHandler,
	everything.RegisterJudgeServiceHandler,
}

func listen() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	fatal(err)
	return listener
}

// serve runs until stdin ends. upstream is the address of another gRPC server than the recorder.
func serve(upstream string) {
	recorder := listen()
	server := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(record))
	go func() { fatal(server.Serve(recorder)) }()
	if upstream == "" {
		upstream = recorder.Addr().String()
	}
	connection, err := grpc.NewClient(upstream, grpc.WithTransportCredentials(insecure.NewCredentials()))
	fatal(err)
	ports := []int{recorder.Addr().(*net.TCPAddr).Port}
	for _, register := range services {
		mux := runtime.NewServeMux(
			runtime.WithIncomingHeaderMatcher(func(name string) (string, bool) {
				return name, name == "X-Reply" || name == "X-Status" || name == "X-Rpc"
			}),
			// As google/api/http.proto and the JSON of A2A have it; the defaults are other ones.
			runtime.WithUnescapingMode(runtime.UnescapingModeAllExceptSlash),
			runtime.WithMarshalerOption(runtime.MIMEWildcard, &runtime.JSONPb{
				MarshalOptions:   protojson.MarshalOptions{},
				UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: true},
			}),
		)
		fatal(register(context.Background(), mux, connection))
		gateway := listen()
		ports = append(ports, gateway.Addr().(*net.TCPAddr).Port)
		go func() { fatal(http.Serve(gateway, mux)) }()
	}
	fatal(json.NewEncoder(os.Stdout).Encode(ports))
	_, _ = io.Copy(io.Discard, os.Stdin)
}

type request struct {
	Service int               `json:"service"`
	Method  string            `json:"method"`
	Path    string            `json:"path"`
	Query   string            `json:"query"`
	Body    *string           `json:"body"`
	Headers map[string]string `json:"headers"`
}

type answer struct {
	Status   int    `json:"status"`
	Method   string `json:"method"`
	Received string `json:"received"`
	Type     string `json:"type"`
	Body     string `json:"body"`
	Error    string `json:"error,omitempty"`
}

var client = &http.Client{
	Transport:     &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true},
	Timeout:       60 * time.Second,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// send repeats a request whose connection broke: the recorder has no state.
func send(port int, r *request) (last answer) {
	for range 3 {
		if last = attempt(port, r); last.Error == "" {
			break
		}
	}
	return last
}

func attempt(port int, r *request) answer {
	var body io.Reader
	if r.Body != nil {
		data, err := decode(*r.Body)
		fatal(err)
		body = bytes.NewReader(data)
	}
	host := fmt.Sprintf("127.0.0.1:%d", port)
	outgoing, err := http.NewRequest(r.Method, "http://"+host+"/", body)
	fatal(err)
	// Opaque sends the path as it is, with its escapes.
	outgoing.URL = &url.URL{Scheme: "http", Host: host, Opaque: r.Path, RawQuery: r.Query}
	if r.Body != nil {
		outgoing.Header.Set("Content-Type", "application/json")
	}
	for name, value := range r.Headers {
		outgoing.Header.Set(name, value)
	}
	response, err := client.Do(outgoing)
	if err != nil {
		return answer{Error: err.Error()}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{Error: err.Error()}
	}
	get := func(name string) string { // grpc-gateway adds a prefix
		if value := response.Header.Get("Grpc-Metadata-" + name); value != "" {
			return value
		}
		return response.Header.Get(name)
	}
	return answer{
		Status: response.StatusCode, Method: get("X-Method"), Received: get("X-Received"),
		Type: response.Header.Get("Content-Type"), Body: base64.StdEncoding.EncodeToString(text),
	}
}

// sendAll keeps 16 requests on the way. targets: the ports of each gateway, by service.
func sendAll(targets [][]int) {
	type job struct {
		request *request
		done    chan []answer
	}
	jobs, ordered := make(chan job, 64), make(chan chan []answer, 64)
	var workers sync.WaitGroup
	for range 16 {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for work := range jobs {
				answers := make([]answer, len(targets))
				for index, ports := range targets {
					answers[index] = send(ports[work.request.Service], work.request)
				}
				work.done <- answers
			}
		}()
	}
	go func() {
		input := json.NewDecoder(bufio.NewReaderSize(os.Stdin, 1<<20))
		for {
			next := new(request)
			if err := input.Decode(next); err == io.EOF {
				break
			} else {
				fatal(err)
			}
			work := job{next, make(chan []answer, 1)}
			ordered <- work.done
			jobs <- work
		}
		close(jobs)
		workers.Wait()
		close(ordered)
	}()
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	encoder := json.NewEncoder(out)
	for done := range ordered {
		fatal(encoder.Encode(<-done))
		if len(ordered) == 0 {
			fatal(out.Flush())
		}
	}
	fatal(out.Flush())
}

func main() {
	switch {
	case len(os.Args) >= 2 && os.Args[1] == "serve":
		serve(strings.Join(os.Args[2:], ""))
	case len(os.Args) == 3 && os.Args[1] == "send":
		var targets [][]int
		fatal(json.Unmarshal([]byte(os.Args[2]), &targets))
		sendAll(targets)
	default:
		log.Fatal("usage: judge serve [UPSTREAM] | judge send TARGETS")
	}
}
